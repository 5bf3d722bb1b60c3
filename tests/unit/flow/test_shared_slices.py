"""Which windows share slices, that stored plans go on, and the limit of windows per row."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import tuning
from millpond.errors import InvalidError
from millpond.operators.aggregate import Aggregate
from millpond.operators.sliding_aggregate import SlidingAggregate
from millpond.sources.memory import MemorySource
from millpond.triggers import always
from millpond.windows import sliding, tumbling

SCHEMA = {"k": str, "n": int, "at": datetime.datetime}
NEVER = 10**9
DAY = datetime.timedelta(days=1)


def at(second: float) -> datetime.datetime:
    return datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=second)


def rows(*seconds: float) -> list[dict[str, Any]]:
    return [{"k": "a", "n": 1, "at": at(s)} for s in seconds]


def shares(pond: millpond.Pond) -> bool:
    return any(isinstance(node.operator, SlidingAggregate) for node in pond.plan.nodes.values())


@pytest.mark.parametrize(
    ("size", "options", "aggregates", "expected"),
    [
        ("1m", {"on_close": True}, {"n": "count(*)", "hi": "max(n)"}, True),
        ("1m", {"on_close": True}, {"n": "sum(n + 1) FILTER (WHERE n > 0)"}, True),
        ("1m", {"on_close": True}, {"n": "count(distinct n)"}, False),
        ("1m", {"on_close": True}, {"n": "max(epoch(window_end))"}, False),
        ("1m", {"on_close": True, "panes": True}, {"n": "count(*)"}, False),
        ("1m", {"on_close": True, "allowed_lateness": "1s"}, {"n": "count(*)"}, False),
        ("1m", {}, {"n": "count(*)"}, False),
        ("2s", {"on_close": True}, {"n": "count(*)"}, False),
    ],
)
def test_windows_share_slices_where_aggregates_can_be_merged(
    size: str, options: Any, aggregates: Any, expected: bool
) -> None:
    with millpond.open("memory://", engine="inline") as pond:
        stream = pond.stream("s", MemorySource(SCHEMA)).watermark("at", "0s").key_by("k")
        stream.window(sliding(size, "1s"), **options).aggregate(**aggregates).view("v")
        assert shares(pond) == expected


def spreads(pond: millpond.Pond) -> bool:
    return any(
        isinstance(node.operator, Aggregate) and node.operator.spread is not None
        for node in pond.plan.nodes.values()
    )


@pytest.mark.parametrize(
    ("windows", "options", "aggregates", "expected"),
    [
        (sliding("1m", "1s"), {}, {"n": "count(*)", "hi": "max(n)"}, True),
        (sliding("1m", "7s"), {"allowed_lateness": "1h"}, {"n": "sum(n + 1) FILTER (WHERE n > 0)"}, True),
        (sliding("1m", "1s"), {}, {"n": "count(distinct n)"}, False),
        (sliding("1m", "1s"), {}, {"n": "max(epoch(window_end))"}, False),
        (sliding("1m", "1s"), {"trigger": always()}, {"n": "count(*)"}, False),
        (sliding("2s", "1s"), {}, {"n": "count(*)"}, False),
        (tumbling("1m"), {}, {"n": "count(*)"}, False),
        (sliding("1s", "1m"), {}, {"n": "count(*)"}, False),
    ],
)
def test_groups_are_spread_over_windows_that_follow_every_row(
    windows: Any, options: Any, aggregates: Any, expected: bool
) -> None:
    with millpond.open("memory://", engine="inline") as pond:
        stream = pond.stream("s", MemorySource(SCHEMA)).watermark("at", "0s").key_by("k")
        stream.window(windows, **options).aggregate(**aggregates).view("v")
        assert spreads(pond) == expected
        assert any(n.endswith(".window") for n in pond.plan.nodes) != expected


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("follows", [False, True])
def test_a_pond_without_slices_goes_on_without(
    tmp_path: Path, replaced: bool, follows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second program is defined with slices, and must continue the state of the first."""

    def opened() -> tuple[millpond.Pond, MemorySource]:
        pond = millpond.open(tmp_path / "pond", engine="inline")
        source = MemorySource(SCHEMA)
        keyed = pond.stream("s", source).watermark("at", "0s").key_by("k")
        for size in ("10s", "20s"):
            windowed = keyed.window(sliding(size, "1s"), on_close=not follows)
            windowed.aggregate(n="count(*)", t="sum(n * 2)").view(f"v{size}")
        windowed.late().view("late")
        return pond, source

    now = spreads if follows else shares
    monkeypatch.setattr(tuning, "SLICED_WINDOWS_MIN", NEVER)
    pond, source = opened()
    with pond:
        source.push(rows(1, 2, 12))
        pond.drain()
        assert not now(pond)
    monkeypatch.undo()
    pond, source = opened()
    assert now(pond)
    with pond:
        if replaced:
            pond.replace("v10s", "v20s")
        source.push(rows(1, 2, 12))
        source.push(rows(14, 60))
        pond.drain()
        assert now(pond) == replaced
        found = sorted((r["window_end"], r["n"], r["t"]) for r in pond.read("v10s").to_pylist())
    ends = {s: [e for e in range(1, 75) if e - 10 <= s < e] for s in (1, 2, 12, 14, *(follows * (60,)))}
    last = 75 if follows else 61
    counts = [(at(e), n, 2 * n) for e in range(last) if (n := sum(e in mine for mine in ends.values()))]
    assert found == counts


def test_too_many_windows_per_row_are_refused() -> None:
    with pytest.raises(InvalidError, match="86,400,000,000 windows, and at most 1,000,000") as caught:
        sliding("1d", 0.000001)
    assert "longer" in str(caught.value)
    with millpond.open("memory://", engine="inline") as pond:
        stream = pond.stream("s", MemorySource(SCHEMA)).watermark("at", "0s")
        with pytest.raises(InvalidError, match="86,400 windows, and at most 10,000"):
            stream.hop("1d", "1s")
        daily = stream.key_by("k").window(sliding("1d", "1s"), on_close=True)
        daily.aggregate(n="count(*)").view("v")
        with pytest.raises(InvalidError, match="at most 10,000 are allowed"):
            daily.top_n(1, "n")
        with pytest.raises(InvalidError, match="at most 10,000 are allowed"):
            stream.key_by("k").window(sliding("1d", "1s"))
        stream.key_by("k").window(tumbling("1d")).aggregate(n="count(*)").view("w")


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"),
        pa.timestamp("ms"),
        pa.timestamp("us", "Europe/Berlin"),
        pa.timestamp("ns"),
        pa.date32(),
    ],
    ids=str,
)
@pytest.mark.parametrize("value", [pa.string(), pa.decimal128(38, 2), pa.bool_()], ids=str)
def test_groups_are_spread_over_windows_of_every_kind_of_time(
    kind: pa.DataType, value: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [0, 1, 7, 7, 9, 3], [20, -3, 11, 2, None, -4000]
    shown = []
    for least in (NEVER, 2):
        monkeypatch.setattr(tuning, "SLICED_WINDOWS_MIN", least)
        schema = pa.schema([("k", pa.string()), ("at", kind), ("x", value)])
        source = MemorySource(schema)
        with millpond.open("memory://", engine="inline", checks=True, parallelism=2) as pond:
            windows = pond.stream("s", source).key_by("k").window(sliding("10d", "1d"), time="at")
            total = {"total": "sum(x)"} if pa.types.is_decimal(value) else {}
            windows.aggregate(n="count(*)", given="count(x)", lo="min(x)", hi="max(x)", **total).view("v")
            for some in days:
                at = [None if d is None else datetime.datetime(2024, 1, 1) + d * DAY for d in some]
                x = pa.array([1, 0, None, 1, 0, 1], pa.int64()).cast(value)
                columns = [["a", "b", None] * 2, pa.array(at, pa.timestamp("us")).cast(kind), x]
                source.push(pa.table(columns, schema=schema))
                pond.drain()
            assert spreads(pond) == (least == 2)
            shown.append(sorted(map(str, pond.read("v").to_pylist())))
            assert pond.errors().num_rows == 1
    assert shown[0] == shown[1]
