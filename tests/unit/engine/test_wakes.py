"""Epochs without input: made when the clock says that something is due, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.clock import ManualClock
from millpond.errors import InternalError
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink
from millpond.sources.memory import MemorySource
from millpond.state.manifest.history import read_manifest
from tests.unit.engine.hold import SCHEMA, SECOND, hold
from tests.waiting import until


def opened(path: Path, clock: ManualClock | None, **options: Any) -> Pond:
    options = {"durable": False, "checks": True, "poll_ms": 5, **options}
    return millpond.open(path, engine="inline", clock=clock, **options)


def held(pond: Pond, delay_us: int = 10 * SECOND, source: MemorySource | None = None) -> MemorySource:
    """Rows of `in` come out of `hold` when their time has come; counted a level further down."""
    source = source or MemorySource(SCHEMA)
    late = pond.stream("in", source).key_by("k")._then("hold", hold(delay_us), "hold")
    late.view("late")
    late.key_by("v").aggregate(id="by_v", n="count(*)").view("by_v")
    return source


def rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in table.select(list(columns)).to_pylist())


def test_what_is_due_is_fired_by_a_drain(tmp_path: Path) -> None:
    clock = ManualClock(100 * SECOND)
    with opened(tmp_path / "pond", clock) as pond:
        source = held(pond)
        source.push([{"k": 1, "v": 5}, {"k": 2, "v": 5}])
        first = pond.drain()
        clock.advance(3 * SECOND)
        source.push([{"k": 3, "v": 6}])
        second = pond.drain()
        assert second == first + 1
        clock.advance(8 * SECOND - 1)
        assert pond.drain() == second, "nothing is due yet, so there is no epoch"
        assert rows(pond.read("late"), "k") == []

        clock.advance(1)
        assert pond.drain() == second + 1
        assert rows(pond.read("late"), "k", "v", "at") == [(1, 5, 110 * SECOND), (2, 5, 110 * SECOND)]
        assert rows(pond.read("by_v"), "v", "n") == [(5, 2)]
        head = pond.head()
        assert (head.kind, head.admitted, head.now_us) == ("epoch", {}, 111 * SECOND)
        assert head.positions == read_manifest(pond.store, second).positions
        assert pond.drain() == second + 1

        clock.advance(60 * SECOND)
        assert pond.drain() == second + 2
        assert rows(pond.read("by_v"), "v", "n") == [(5, 2), (6, 1)]
        assert rows(pond.read("late", epoch=second), "k") == []


def test_readers_and_sinks_hear_of_an_epoch_without_input(tmp_path: Path) -> None:
    clock = ManualClock(100 * SECOND)
    heard: list[tuple[int, list[tuple[Any, ...]]]] = []
    with opened(tmp_path / "pond", clock) as pond:
        source = MemorySource(SCHEMA)
        late = pond.stream("in", source)._then("hold", hold(SECOND), "hold").view("late")
        late.sink(
            "out",
            CallbackSink(lambda id, delta: heard.append((int(id.split(":")[1]), rows(delta, "k", "_w")))),
        )
        source.push([{"k": 1, "v": 5}])
        before = pond.drain()
        clock.advance(2 * SECOND)
        after = pond.drain()
        assert after > before
        assert [(d.epoch, rows(d.table, "k", "_w")) for d in pond.changes("late", before)] == [
            (before + 1, [(1, 1)])
        ]
        assert heard == [(before + 1, [(1, 1)])]


def test_what_is_due_rides_along_with_rows_that_reach_less_far(tmp_path: Path) -> None:
    clock = ManualClock(100 * SECOND)
    with opened(tmp_path / "pond", clock, parallelism=3) as pond:
        source = held(pond, SECOND)
        other = MemorySource(SCHEMA)
        pond.stream("other", other).view("other")
        source.push([{"k": k, "v": k % 2} for k in range(20)])
        before = pond.drain()
        clock.advance(10 * SECOND)
        other.push([{"k": 7, "v": 7}])
        assert pond.drain() == before + 1
        assert list(pond.head().admitted) == ["other"]
        assert rows(pond.read("other"), "k") == [(7,)]
        assert rows(pond.read("late"), "k") == [(k,) for k in range(20)]
        assert rows(pond.read("by_v"), "v", "n") == [(0, 10), (1, 10)]


@pytest.mark.parametrize("parallelism", [1, 2, 7])
def test_it_does_not_matter_how_many_tasks_fire(tmp_path: Path, parallelism: int) -> None:
    """Law 3."""
    clock = ManualClock(100 * SECOND)
    with opened(tmp_path / "pond", clock, parallelism=parallelism) as pond:
        source = held(pond, SECOND)
        source.push(*[[{"k": k, "v": k % 3}] for k in range(30)])
        before = pond.drain()
        pond.rescale(8 - parallelism)
        clock.advance(10 * SECOND)
        pond.drain()
        assert rows(pond.read("late"), "k") == [(k,) for k in range(30)]
        assert rows(pond.read("by_v"), "v", "n") == [(v, 10) for v in range(3)]
        assert pond.head().metrics["tasks"][0] == 1
        assert pond.head().epoch == before + 2


def test_what_became_due_while_nobody_ran_is_fired_by_whoever_comes_next(tmp_path: Path) -> None:
    clock = ManualClock(100 * SECOND)
    items: list[Any] = []
    with opened(tmp_path / "pond", clock) as pond:
        source = held(pond)
        source.push([{"k": 1, "v": 5}])
        items += source.items
        pond.drain()
    clock.advance(20 * SECOND)
    with opened(tmp_path / "pond", clock) as pond:  # with the plan of the catalog
        source = MemorySource(SCHEMA)
        source.push(*items)
        held(pond, source=source)
        pond.drain()
        assert rows(pond.read("late"), "k") == [(1,)]
        assert rows(pond.read("by_v"), "v", "n") == [(5, 1)]
    with opened(tmp_path / "pond", clock) as pond:
        held(pond, source=source)
        pond.drain()
        assert rows(pond.read("late"), "k") == [(1,)], "once"


def test_after_a_rollback_it_is_fired_again(tmp_path: Path) -> None:
    clock = ManualClock(100 * SECOND)
    with opened(tmp_path / "pond", clock) as pond:
        source = held(pond)
        source.push([{"k": 1, "v": 5}])
        before = pond.drain()
        clock.advance(20 * SECOND)
        pond.drain()
        pond.rollback(before)
        assert rows(pond.read("late"), "k") == []
        pond.drain()
        assert rows(pond.read("late"), "k") == [(1,)]
        assert rows(pond.read("by_v"), "v", "n") == [(5, 1)]


def test_a_running_pond_wakes_by_itself(tmp_path: Path) -> None:
    with opened(tmp_path / "pond", None) as pond:
        source = MemorySource(SCHEMA)
        pond.stream("in", source)._then("hold", hold(20_000, width_us=10_000), "hold").view("late")
        pond.start()
        source.push([{"k": 1, "v": 5}])
        until(lambda: pond.views() and pond.read("late").num_rows)
        (row,) = pond.read("late").to_pylist()
        assert pond.head().now_us >= row["at"]
        pond.stop()


def test_compaction_of_what_waits_changes_nothing(tmp_path: Path) -> None:
    clock = ManualClock(100 * SECOND)
    with opened(tmp_path / "pond", clock) as pond:
        source = held(pond)
        for k in range(5):
            source.push([{"k": k, "v": 5}])
            pond.drain()
        pond.compact()
        clock.advance(20 * SECOND)
        pond.drain()
        assert rows(pond.read("late"), "k") == [(k,) for k in range(5)]


def test_a_step_that_leaves_what_is_due_is_told(tmp_path: Path) -> None:
    clock = ManualClock(100 * SECOND)
    with opened(tmp_path / "pond", clock) as pond:
        source = MemorySource(SCHEMA)
        pond.stream("in", source)._then("hold", hold(SECOND, lets_go=False), "hold").view("late")
        source.push([{"k": 1, "v": 5}])
        pond.drain()
        clock.advance(5 * SECOND)
        with pytest.raises(InternalError, match="hold/held"):
            pond.drain()


def test_an_epoch_without_input_can_be_run_again(tmp_path: Path) -> None:
    clock = ManualClock(100 * SECOND)
    with opened(tmp_path / "pond", clock, parallelism=2) as pond:
        source = held(pond, SECOND)
        source.push([{"k": k, "v": 5} for k in range(9)])
        pond.drain()
        clock.advance(5 * SECOND)
        again = pond.replay(pond.drain())
        assert again.same, again.differences
        assert again.outputs["hold"].num_rows == 9
