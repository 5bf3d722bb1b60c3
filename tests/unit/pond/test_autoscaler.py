"""A pond whose number of tasks follows its load: decisions are commits, with a reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import millpond
from millpond.clock import ManualClock
from millpond.control.inbox_sender import InboxSender
from millpond.engine.task.spec import EpochSpec, Report
from millpond.errors import InvalidError
from millpond.pond.api import Pond
from millpond.pond.autoscaler import Autoscaler
from millpond.settings import make_settings
from millpond.sources.memory import MemorySource
from millpond.state.manifest.manifest import Manifest


class Cluster:
    """Executors that come at once, of two cores."""

    cores_each = 2

    def __init__(self) -> None:
        self.wanted = 1
        self.asked: list[int] = []

    def request(self, count: int) -> None:
        self.wanted = count
        self.asked.append(count)


class ClusterEngine:
    default_parallelism = 2
    single_task_rows_max = 0

    def __init__(self, executors: Cluster | None) -> None:
        self.executors = executors

    def run(self, spec: EpochSpec) -> list[Report]:
        raise NotImplementedError

    def map(self, function: Callable[[bytes], bytes], items: Sequence[bytes]) -> list[bytes]:
        raise NotImplementedError

    def cancel(self) -> None: ...

    def close(self) -> None: ...


ENGINE = ClusterEngine(None)


def busy(epoch: int, tasks: int) -> Manifest:
    """An epoch of a second in which every task worked all the time, with much left to read."""
    metrics = {
        "rows": 10_000 + epoch,
        "ms": 1000.0,
        "tasks": [tasks, tasks],
        "tasks_us": [500_000] * 2 * tasks,
        "backlog": {"orders": 5_000_000},
    }
    return Manifest("p", epoch, 1, "n", epoch * 1_000_000, parallelism=tasks, metrics=metrics)


def opened(mode: str) -> tuple[Pond, MemorySource]:
    pond = millpond.open("memory://", engine="inline", parallelism=1, autoscale=mode, tasks_max=8)
    orders = MemorySource({"n": int})
    pond.stream("orders", orders).key_by("n").aggregate(c="count(*)").view("counts")
    orders.push([{"n": 1}])
    pond.drain()
    return pond, orders


@pytest.mark.parametrize(("mode", "then"), [("on", 8), ("advise", 1)])
def test_a_decision_is_committed_with_its_reason(mode: str, then: int) -> None:
    pond, orders = opened(mode)
    settings = make_settings(autoscale=mode, tasks_max=8)
    scaler = Autoscaler(settings, InboxSender(pond.store), lambda: ENGINE)
    for epoch in range(1, 6):
        scaler(busy(epoch, 1))
    orders.push([{"n": 2}])
    pond.drain()
    assert pond.head().parallelism == then
    (row,) = pond.sql("SHOW SCALING").arrow().to_pylist()
    assert (row["mode"], row["before"], row["tasks"]) == (mode, 1, 8)
    assert "rows/s arrive" in row["reason"] and "8 are allowed" in row["reason"]
    assert pond.read("counts").num_rows == 2
    pond.close()


def test_one_decision_then_a_pause() -> None:
    pond, _ = opened("on")
    sender = InboxSender(pond.store)
    scaler = Autoscaler(make_settings(autoscale="on", tasks_max=8), sender, lambda: ENGINE)
    before = sender.next_entry()
    for epoch in range(1, 20):
        scaler(busy(epoch, 1))
    pond.drain()
    assert sender.next_entry() == before + 1
    pond.close()


@pytest.mark.parametrize("mode", ["on", "advise"])
def test_executors_follow_the_tasks(mode: str) -> None:
    """They are asked for after the commit of the decision, and given back when nothing needed them."""
    pond, orders = opened(mode)
    cluster = Cluster()
    settings = make_settings(autoscale=mode, tasks_max=8, executors_max=3, scaling_pause_ms=10_000)
    scaler = Autoscaler(settings, InboxSender(pond.store), lambda: ClusterEngine(cluster))
    pond.on_epoch(scaler)
    for epoch in range(1, 6):
        scaler(busy(epoch, 1))
    assert not cluster.asked
    pond.drain()
    assert cluster.asked == ([3] if mode == "on" else [])
    for epoch in range(100, 140):
        idle = {"rows": 1, "ms": 10.0, "tasks": [2, 2], "tasks_us": [10] * 4, "backlog": {}}
        scaler(Manifest("p", epoch, 1, "n", epoch * 1_000_000, parallelism=2, metrics=idle))
    orders.push([{"n": 2}])
    pond.drain()
    up, *_, down = (r for r in pond.scaling().to_pylist() if r["executors"])
    assert (up["tasks"], up["executors"], down["executors"]) == (8, 3, 1)
    assert "8 tasks need 4 executors of 2 cores; 3 are allowed" in up["reason"]
    assert "more than 2 tasks" in down["reason"]
    assert cluster.asked == ([3, 1] if mode == "on" else [])
    pond.close()


def test_without_a_cluster_there_is_no_second_knob() -> None:
    pond, _ = opened("on")
    settings = make_settings(autoscale="on", tasks_max=8, executors_max=3)
    scaler = Autoscaler(settings, InboxSender(pond.store), lambda: ENGINE)
    for epoch in range(1, 6):
        scaler(busy(epoch, 1))
    pond.drain()
    assert pond.scaling()["executors"].to_pylist() == [None]
    pond.close()


def test_it_hears_the_epochs_of_its_pond() -> None:
    clock = ManualClock(0)
    pond = millpond.open(
        "memory://", engine="inline", parallelism=6, autoscale="on", tasks_max=8, clock=clock
    )
    orders = MemorySource({"n": int})
    pond.stream("orders", orders).key_by("n").aggregate(c="count(*)").view("counts")
    for n in range(200):
        orders.push([{"n": n}])
        clock.advance(1_000_000)
        pond.drain()
    assert pond.head().parallelism == 1, "six tasks for one row a second are too many"
    assert pond.scaling().num_rows >= 1
    pond.close()


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(InvalidError, match="cannot be 'sometimes'") as caught:
        make_settings(autoscale="sometimes")
    assert caught.value.hint == "it takes 'off' or 'advise' or 'on'"


def test_a_symptom_is_named_once() -> None:
    pond, orders = opened("advise")
    sender = InboxSender(pond.store)
    scaler = Autoscaler(make_settings(autoscale="advise", tasks_max=8), sender, lambda: ENGINE)
    for epoch in range(1, 60):
        metrics = {
            "rows": 100,
            "ms": 1000.0,
            "tasks": [1, 4],
            "tasks_us": [10_000, 10_000, 10_000, 90_000, 10_000],
            "backlog": {},
        }
        scaler(Manifest("p", epoch, 1, "n", epoch * 100_000, parallelism=4, metrics=metrics))
    orders.push([{"n": 2}])
    pond.drain()
    rows = [r for r in pond.scaling().to_pylist() if r["symptoms"]]
    assert len(rows) == 1 and rows[0]["symptoms"].startswith("hot key: level 1, task 2; it takes 9.0 times")
    assert pond.head().parallelism == 1  # a symptom changes nothing
    pond.close()
