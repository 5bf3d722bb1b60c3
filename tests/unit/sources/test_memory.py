"""The test source: rows, pauses and crashes, at their places and once."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.plan import codec
from millpond.sources.memory import Crash, EventTimeBound, InjectedCrash, MemorySource, Pause

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def pond_over(path: Path, source: MemorySource, **settings: Any) -> millpond.Pond:
    pond = millpond.open(path, engine="inline", durable=False, **settings)
    stream = pond.stream("s", source)
    stream.key_by("k").aggregate(n="count(*)", total="sum(v)").view("sums")
    return pond


def sums(pond: millpond.Pond) -> dict[str, tuple[int, int]]:
    return {r["k"]: (r["n"], r["total"]) for r in pond.read("sums").to_pylist()}


def test_items_become_rows_in_order_and_once(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    source.push([{"k": "a", "v": 1}], pa.table({"k": ["a", "b"], "v": [2, 3]}, schema=SCHEMA))
    with pond_over(tmp_path, source) as pond:
        pond.drain()
        assert sums(pond) == {"a": (2, 3), "b": (1, 3)}
        source.push([{"k": "b", "v": 4}])
        pond.drain()
        pond.drain()
        assert sums(pond) == {"a": (2, 3), "b": (2, 7)}
        assert pond.head().positions["s"] == 3


def test_retractions(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA, append_only=False)
    source.push([{"k": "a", "v": 1}, {"k": "a", "v": 2}], [{"k": "a", "v": 1, "_w": -1}, {"k": "b", "v": 5}])
    with pond_over(tmp_path, source, epoch_rows_max=2) as pond:
        pond.drain()
        assert sums(pond) == {"a": (1, 2), "b": (1, 5)}


def test_a_crash_ends_the_run_once_and_a_restart_goes_on_behind_it(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    source.push([{"k": "a", "v": 1}], Crash("here"), [{"k": "a", "v": 2}], Pause(), [{"k": "a", "v": 4}])
    pond = pond_over(tmp_path, source)
    with pytest.raises(InjectedCrash, match="here"):
        pond.drain()
    assert sums(pond) == {"a": (1, 1)}
    pond.close()
    with pond_over(tmp_path, source) as again:
        again.drain()
        assert sums(again) == {"a": (2, 3)}
        again.drain()
        assert sums(again) == {"a": (3, 7)}
        assert again.head().positions["s"] == 5


def test_a_pause_gives_nothing_for_so_many_polls() -> None:
    source = MemorySource(SCHEMA)
    source.push(Pause(2), [{"k": "a", "v": 1}], Pause(), [{"k": "a", "v": 2}])
    assert [len(source.poll(None, None, 10).splits) for _ in range(3)] == [0, 0, 1]
    position = source.advance(None, source.poll(None, None, 10).splits, ()).position
    assert position == 2
    assert [len(source.poll(position, None, 10).splits) for _ in range(2)] == [0, 1]


def test_a_poll_is_bounded_and_reads_only_what_is_asked_for() -> None:
    source = MemorySource(SCHEMA)
    source.push(*[[{"k": "a", "v": n}] for n in range(10)])
    splits = source.poll(3, None, 4).splits
    assert [s.rows for s in splits] == [1, 1, 1, 1]
    assert [t.to_pylist() for s in splits for t in source.read(s, ["v"])] == [[{"v": n}] for n in range(3, 7)]


def test_a_position_beyond_the_items_and_items_that_are_none(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with pytest.raises(InvalidError, match="beyond its end") as caught:
        source.poll(1, None, 10)
    assert "1 items were taken, it has 0" in str(caught.value.detail)
    with pytest.raises(InvalidError, match="the value is not a list of rows"):
        source.push(7)


def test_the_items_are_not_part_of_the_plan() -> None:
    source = MemorySource(SCHEMA)
    source.push([{"k": "a", "v": 1}])
    again = codec.loads(codec.dumps(source))
    assert again == source
    assert again.items == []


def test_a_bound_moves_event_time_without_a_row_and_makes_what_follows_late(tmp_path: Path) -> None:
    """Law 8: watermarks only rise, and late data is never lost silently."""
    source = MemorySource(pa.schema([("ts", pa.timestamp("us")), ("v", pa.int64())]))
    with millpond.open(tmp_path, engine="inline", durable=False, parallelism=3) as pond:
        rows = pond.stream("s", source, event_time="ts", delay="5s")
        closed = rows.tumble("10s").key_by("window_end").aggregate(on_close=True, n="count(*)")
        closed.view("closed")
        source.push([{"ts": 1_000_000, "v": 1}, {"ts": 12_000_000, "v": 2}])
        pond.drain()
        assert pond.read("closed").num_rows == 0  # the watermark is at 7 s
        source.push(EventTimeBound(10_000_000))
        pond.drain()
        assert pond.read("closed").column("n").to_pylist() == [1]
        source.push(EventTimeBound(3_000_000), [{"ts": 9_000_000, "v": 3}, {"ts": 13_000_000, "v": 4}])
        pond.drain()
        assert pond.late("s.watermark").column("v").to_pylist() == [3]
        state = pond.head().watermarks["s.watermark"]
        assert (state["max"], state["bound"]) == (13_000_000, 10_000_000)
        assert pond.replay(pond.epoch - 1).same
        with pytest.raises(InvalidError, match="the value is not a list of rows"):
            source.push(7)


def test_a_table_is_named_where_rows_are_inserted(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        orders = pond.table("orders", {"k": int})
        with pytest.raises(InvalidError, match="pass its name, 'orders'"):
            pond.insert(orders, {"k": 1})  # type: ignore[arg-type]
        with pytest.raises(InvalidError, match="the table comes first, by its name"):
            pond.insert({"k": 1}, "orders")  # type: ignore[arg-type]


def test_a_fraction_is_never_cut(tmp_path: Path) -> None:
    source = MemorySource({"k": int})
    with pytest.raises(InvalidError, match=r"column 'k' is int64, got 1\.5"):
        source.push([{"k": 1.5}])
    with pytest.raises(InvalidError, match=r"got 1\.5"):
        source.push([{"k": Decimal("1.5")}])
    nested = MemorySource({"k": list[int], "m": dict[str, int]})
    nested.push([{"k": [1, 2.0, None], "m": {"a": 1}}])
    for row in ({"k": [1, 1.5], "m": None}, {"k": None, "m": {"a": 1.5}}):
        with pytest.raises(InvalidError, match=r"got 1\.5"):
            nested.push([row])
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.table("t", {"k": int}, key="k")
        with pytest.raises(InvalidError, match=r"got 1\.5"):
            pond.insert("t", [{"k": 1.5}])
        pond.insert("t", [{"k": 1.0}])
        pond.drain()
        with pytest.raises(InvalidError, match=r"got 1\.5"):
            pond.lookup("t", 1.5)
        assert pond.lookup("t", 1).to_pylist() == [{"k": 1}]
