"""A cluster without executors is waited for, aloud."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millpond.engine.spark.executors import wait_for_executors
from millpond.errors import UnavailableError


class FakeCluster:
    """A Spark context whose executors register at given times; only sleeping moves the clock."""

    master = "spark://h:7077"

    def __init__(self, *registers_s: float, instances: str = "") -> None:
        self.now_s = 0.0
        self.registers_s = registers_s
        self.instances = instances
        self._jsc = SimpleNamespace(sc=lambda: self)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s

    def count(self) -> int:
        return sum(at <= self.now_s for at in self.registers_s)

    def getExecutorMemoryStatus(self) -> Any:
        return SimpleNamespace(size=lambda: 1 + self.count())

    def defaultParallelism(self) -> int:
        return max(2, 4 * self.count())

    def conf(self) -> Any:
        return SimpleNamespace(get=lambda name, otherwise: self.instances or otherwise)


def waited(cluster: FakeCluster, wait_s: float = 600.0) -> list[str]:
    told: list[str] = []
    wait_for_executors(cluster, told.append, wait_s=wait_s, sleep=cluster.sleep, monotonic=cluster.monotonic)
    return told


def test_it_says_every_five_seconds_that_there_are_none() -> None:
    told = waited(FakeCluster(22.0))
    assert [text.split(":")[0] for text in told[:-1]] == [f"no executors for {n} s" for n in (5, 10, 15, 20)]
    assert told[-1] == ""


def test_all_executors_are_counted_that_come_soon_after_the_first() -> None:
    cluster = FakeCluster(1.0, 2.5, 4.0)
    waited(cluster)
    assert cluster.count() == 3


def test_it_does_not_wait_for_more_than_were_asked_for() -> None:
    cluster = FakeCluster(0.0, 0.0, instances="2")
    waited(cluster)
    assert cluster.now_s < 0.2


def test_it_gives_up_with_the_reason() -> None:
    with pytest.raises(UnavailableError, match="no executor registered with the driver for 30 s"):
        waited(FakeCluster(), wait_s=30.0)
