"""The hosts of tasks follow the executors, and a driver that takes over continues with the placement."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import millpond
from millpond.engine.inline import InlineEngine
from millpond.engine.spark.preferred_hosts import LOOK_EVERY_S, TASKS_MAX, HostPlacement
from millpond.engine.task.worker import Worker
from millpond.state.store.local_store import LocalStore


class FakeContext:
    """A Spark context with a driver and executors on these hosts."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts
        self.now_s = 0.0
        self._jsc = SimpleNamespace(sc=lambda: self)

    def conf(self) -> Any:
        return {"spark.driver.host": "driver"}

    def getExecutorMemoryStatus(self) -> Any:
        named = [f"{host}:{7000 + n}" for n, host in enumerate(("driver", *self.hosts))]
        return SimpleNamespace(keys=lambda: SimpleNamespace(mkString=lambda mark: mark.join(named)))


def test_tasks_follow_the_executors() -> None:
    context = FakeContext("a", "b")
    placement = HostPlacement(context, lambda: context.now_s)
    assert placement.hosts(4) == ("a", "a", "b", "b")
    context.hosts = ("a", "b", "b", "c", "c")
    assert placement.hosts(4) == ("a", "a", "b", "b")  # it does not look at every epoch
    context.now_s += LOOK_EVERY_S
    assert placement.hosts(4) == ("a", "c", "b", "b")
    assert placement.hosts(2) == ("a", "b")
    assert placement.hosts(TASKS_MAX + 1) == ()


def test_one_host_is_no_choice_and_an_executor_beside_the_driver_counts() -> None:
    assert HostPlacement(FakeContext("a", "a")).hosts(4) == ()
    assert HostPlacement(FakeContext("driver", "a")).hosts(2) == ("a", "driver")


class Placed(InlineEngine):
    """An engine that pretends to place its tasks."""

    placement: tuple[str, ...] = ()


def test_the_next_driver_continues_with_the_placement(tmp_path: Path) -> None:
    def opened() -> tuple[millpond.Pond, Placed]:
        store = LocalStore(tmp_path, durable=False)
        engine = Placed(Worker(store))
        pond = millpond.Pond(store, engine=engine, parallelism=2, take_over=True)
        pond.table("t", {"k": int})
        pond.insert("t", {"k": 1})
        return pond, engine

    pond, engine = opened()
    engine.placement = ("b", "a")
    pond.drain()
    assert pond.head().metrics["placed"] == {"names": ["a", "b"], "of": [1, 0]}
    pond.close()
    pond, engine = opened()
    pond.drain()
    assert engine.placement == ("b", "a")
    pond.close()
