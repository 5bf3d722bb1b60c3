"""State that a query bounds stays bounded: a long stream leaves no more behind than a short one.

Every operator runs here in every form in which time or deletions can bound its state, or stands in
`STATELESS` or `UNBOUNDED` with the reason.  What grows with a stream is the view, never the state beside it
(law 1).
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import millpond
import millpond.operators
import millpond.process
from millpond import MapState, Process, ValueState
from millpond.clock import ManualClock
from millpond.flow.stream import Stream
from millpond.flow.windowed import WindowedStream
from millpond.operators.materialize import Materialize
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from millpond.state.manifest.listing import Listing
from millpond.triggers import after_count, after_delay, after_watermark, every, never, repeatedly
from millpond.windows import sessions, sliding, tumbling

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
START = datetime(2026, 1, 1)
EPOCHS = 5
EPOCH_US = 10_000_000  # how far time moves in an epoch

STATELESS = {
    "AssignSlices": "computes rows from one row",
    "AssignWindows": "computes rows from one row",
    "EmitDiscarded": "all contents of a pane come in the epoch in which it fires",
    "PickPanes": "passes rows on",
    "WithinEpoch": "sees the rows of one epoch alone",
    "Arm": "passes rows on",
    "DecodeChanges": "computes rows from one row",
    "Branch": "passes rows on",
    "Filter": "passes rows on",
    "FilterRows": "passes rows on",
    "WithinCalendar": "passes rows on",
    "FlatMap": "computes rows from one row",
    "Hop": "computes rows from one row",
    "LateRows": "passes rows on",
    "Map": "computes rows from one row",
    "MapBatches": "computes rows from the rows of a batch",
    "PadColumns": "computes rows from one row",
    "Pick": "passes rows on",
    "Scan": "a source keeps its position, in the manifest",
    "Shard": "computes rows from one row",
    "Stamp": "computes rows from one row",
    "Tumble": "computes rows from one row",
    "Union": "passes rows on",
    "Unnest": "computes rows from one row",
}
UNBOUNDED = {
    "BatchProcess": "its states have no time to live; user code decides what they hold",
    "CountWindows": "numbers the rows of a key from its first one: one number for each key",
    "Iterate": "a recursion may need any earlier row; its rows go when those of its input do",
    "Last": "the rows of the last round of a recursion: part of Iterate",
    "Materialize": "is a view, and holds what its query gives",
    "ReplicatedTable": "is a table, and holds the rows of the original",
    "ExcludeLate": "only runs in a backfill",
    "StateScan": "only runs in a backfill",
}


class SumUp:
    """An aggregate in Python that can take rows back."""

    def __init__(self) -> None:
        self.n = 0

    def accumulate(self, v: int) -> None:
        self.n += v

    def retract(self, v: int) -> None:
        self.n -= v

    def finish(self) -> int:
        return self.n


class Forgets(Process):
    """A state for each key, which a timer clears."""

    seen = ValueState(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen.value = row.v
        ctx.set_timer("forget", after=20)
        return None

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        last = self.seen.value
        self.seen.clear()
        return {"last": last}


def once(row: Any, seen: Any = ValueState(bool, ttl="20s"), each: Any = MapState(int, int, ttl="20s")) -> Any:
    """Deduplication within a time to live by event time."""
    each[row.v] = 1
    if seen.value:
        return None
    seen.value = True
    return {"v": row.v}


def once_by_clock(row: Any, seen: Any = ValueState(bool, ttl="20s", clock="processing")) -> Any:
    if seen.value:
        return None
    seen.value = True
    return {"v": row.v}


@dataclass
class World:
    pond: Pond
    a: MemorySource
    b: MemorySource
    sa: Stream
    sb: Stream


def windows(w: World) -> Stream:
    return w.sa.tumble("10s")


def by_window(stream: Stream, **aggregates: str) -> Stream:
    return stream.key_by("window_end", "k").aggregate(**aggregates)


def retracting(w: World) -> Stream:
    """Rows by window that are taken back and given again while their window is open."""
    return by_window(windows(w), n="count(*)", v="max(v)")


EARLY_AND_LATE = after_watermark(early=after_count(3), late=after_count(1))


def windowed(w: World, **options: Any) -> WindowedStream:
    """Windows of ten seconds with a trigger."""
    given: dict[str, Any] = {"trigger": EARLY_AND_LATE, "allowed_lateness": "7s", **options}
    return w.sa.key_by("k").window(given.pop("windows", tumbling("10s")), **given)


def in_sessions(w: World, **options: Any) -> WindowedStream:
    return windowed(w, windows=sessions("3s"), **options)


def counted(stream: WindowedStream) -> Stream:
    """No view: a step behind it needs its rows."""
    return stream.aggregate(n="count(*)", kinds="count(distinct v)").filter("n >= 0")


WINDOWED: dict[str, Callable[[World], Any]] = {
    "panes": lambda w: counted(windowed(w)).view("panes"),
    "panes_as_view": lambda w: windowed(w).aggregate(n="count(*)").view("panes_as_view"),
    "panes_accumulating": lambda w: counted(windowed(w, mode="accumulating")).view("panes_accumulating"),
    "panes_discarding": lambda w: counted(windowed(w, mode="discarding", panes=True)).view(
        "panes_discarding"
    ),
    "panes_by_clock": lambda w: (
        windowed(w, trigger=after_watermark(early=every("4s"), late=after_delay("3s")))
        .top_n(2, "v desc")
        .filter("v >= 0")
        .view("panes_by_clock")
    ),
    "panes_at_expiry": lambda w: (
        windowed(w, trigger=never(), windows=tumbling("10s", offset="3s"))
        .distinct("v")
        .filter("v >= 0")
        .view("panes_at_expiry")
    ),
    "panes_once": lambda w: (
        windowed(w, trigger=after_watermark(), panes=True)
        .apply(sql="SELECT median(v) AS m FROM input")
        .filter("m >= 0")
        .view("panes_once")
    ),
    "panes_sliding": lambda w: (
        windowed(w, windows=sliding("20s", "10s"))
        .reduce(lambda x, y: {"v": x.v + y.v, "ts": max(x.ts, y.ts)})
        .filter("v >= 0")
        .view("panes_sliding")
    ),
    "sliced": lambda w: (
        w.sa.key_by("k")
        .window(sliding("20s", "2s"), on_close=True)
        .aggregate(n="count(*)", hi="max(v)")
        .view("sliced")
    ),
    "late": lambda w: windowed(w).late().filter("v >= 0").view("window_late"),
    "sessions": lambda w: (
        w.sa.key_by("k").window(sessions("3s")).aggregate(n="count(*)").filter("n > 0").view("sessions")
    ),
    "sessions_closed": lambda w: (
        w.sa.key_by("k").window(sessions("3s"), on_close=True).aggregate(n="count(*)").view("sessions_closed")
    ),
    "sessions_triggered": lambda w: counted(in_sessions(w)).view("sessions_triggered"),
    "sessions_accumulating": lambda w: counted(
        in_sessions(w, mode="accumulating", trigger=repeatedly(after_count(2)))
    ).view("sessions_accumulating"),
    "sessions_discarding": lambda w: counted(in_sessions(w, mode="discarding", trigger=every("4s"))).view(
        "sessions_discarding"
    ),
    "windows_in_python": lambda w: (
        windowed(w).process(once_by_clock, {"v": int}, id="once_windows").view("windows_in_python")
    ),
    "in_order": lambda w: (
        w.sa.key_by("k").in_order(slack=1000, id="sorted").stream.filter("v >= 0").view("in_order")
    ),
    "union_of_panes": lambda w: (
        counted(windowed(w))
        .union(counted(windowed(w, mode="accumulating")))
        .key_by("window_end")
        .aggregate(n="sum(n)")
        .filter("n > 0")
        .view("union_of_panes")
    ),
    "join_of_panes": lambda w: (
        counted(windowed(w))
        .join(
            w.sb.key_by("k")
            .window(tumbling("10s"), trigger=EARLY_AND_LATE, allowed_lateness="7s")
            .aggregate(m="count(*)"),
            ["k", "window_end"],
        )
        .view("join_of_panes")
    ),
    "window_of_windows": lambda w: (
        w.sa.key_by("k")
        .window(tumbling("10s"), on_close=True)
        .aggregate(n="count(*)")
        .select("n", ended="window_end")
        .key_by("n")
        .window(tumbling("20s"), time="ended", on_close=True)
        .aggregate(m="count(*)")
        .view("window_of_windows")
    ),
}

FLOW: dict[str, Callable[[World], Any]] = {
    "count_distinct": lambda w: by_window(windows(w), n="count(distinct v)").view("count_distinct"),
    "sum_distinct_behind": lambda w: (
        by_window(windows(w), n="sum(distinct v)").filter("n > 0").view("sum_distinct_behind")
    ),
    "aggregate_behind": lambda w: (
        by_window(windows(w), n="count(*)").filter("n > 0").view("aggregate_behind")
    ),
    "hop": lambda w: by_window(w.sa.hop("20s", "10s"), n="count(distinct v)").filter("n > 0").view("hop"),
    "on_close": lambda w: (
        windows(w).key_by("window_end", "k").aggregate(on_close=True, n="count(distinct v)").view("on_close")
    ),
    "min_max_retracting": lambda w: (
        retracting(w)
        .key_by("window_end")
        .aggregate(lo="min(v)", hi="max(n)")
        .filter("lo >= 0")
        .view("min_max_retracting")
    ),
    "min_max_buckets": lambda w: (
        retracting(w)
        .key_by("window_end")
        .aggregate(buckets=4, hi="max(v)")
        .filter("hi >= 0")
        .view("min_max_b")
    ),
    "distinct": lambda w: windows(w).distinct("window_end", "k").filter("k >= 0").view("distinct"),
    "distinct_retracting": lambda w: (
        retracting(w).distinct("window_end", "n").filter("n >= 0").view("distinct_retracting")
    ),
    "distinct_by_time": lambda w: w.sa.distinct("k", "ts").filter("k >= 0").view("distinct_by_time"),
    "top_n": lambda w: windows(w).key_by("window_end").top_n(2, "v desc").view("top_n"),
    "top_n_retracting": lambda w: (
        retracting(w).key_by("window_end").top_n(2, "v desc").view("top_n_retracting")
    ),
    "top_n_buckets": lambda w: windows(w).key_by("window_end").top_n(2, "v desc", buckets=4).view("top_n_b"),
    "first": lambda w: windows(w).key_by("window_end").first("v desc").filter("v >= 0").view("first"),
    "first_retracting": lambda w: (
        retracting(w).key_by("window_end").first("v desc").filter("v >= 0").view("first_retracting")
    ),
    "reduce": lambda w: (
        windows(w)
        .select("window_end", "v")
        .key_by("window_end")
        .reduce(lambda x, y: {"v": x.v + y.v})
        .view("reduce")
    ),
    "apply": lambda w: (
        windows(w)
        .select("window_end", "v")
        .key_by("window_end")
        .apply(sql="select window_end, sum(v) as v from input group by window_end")
        .view("apply")
    ),
    "join_windows": lambda w: windows(w).join(w.sb.tumble("10s"), ["window_end", "k"]).view("join_windows"),
    "join_windows_full": lambda w: (
        windows(w).join(w.sb.tumble("10s"), ["window_end", "k"], "full").view("join_windows_full")
    ),
    "join_windows_semi": lambda w: (
        windows(w).join(w.sb.tumble("10s"), ["window_end", "k"], "semi").view("join_windows_semi")
    ),
    "join_windows_anti": lambda w: (
        windows(w).join(w.sb.tumble("10s"), ["window_end", "k"], "anti").view("join_windows_anti")
    ),
    "join_windows_broadcast": lambda w: (
        windows(w)
        .join(w.sb.tumble("10s"), ["window_end", "k"], "left", broadcast="right")
        .view("join_windows_broadcast")
    ),
    "join_aggregates": lambda w: (
        by_window(windows(w), n="count(*)")
        .join(by_window(w.sb.tumble("10s"), m="count(*)"), ["window_end", "k"])
        .view("join_aggregates")
    ),
    "join_interval": lambda w: w.sa.join(
        w.sb, "k", where="ts_right BETWEEN ts - INTERVAL '5 seconds' AND ts + INTERVAL '5 seconds'"
    ).view("join_interval"),
    "join_interval_left": lambda w: w.sa.join(
        w.sb, "k", "left", where="ts_right >= ts AND ts_right <= ts + INTERVAL '5 seconds'"
    ).view("join_interval_left"),
    "union_of_windows": lambda w: (
        by_window(windows(w).union(w.sb.tumble("10s")), n="count(distinct v)")
        .filter("n > 0")
        .view("union_of_windows")
    ),
    "python_rows": lambda w: (
        windows(w)
        .filter(lambda row: row.v >= 0)
        .branch("k >= 0")[0]
        .key_by("window_end")
        .aggregate(n="count(distinct v)")
        .filter("n > 0")
        .view("python_rows")
    ),
    "timers": lambda w: w.sa.key_by("k").process(Forgets, {"last": int}, id="forgets").view("timers"),
    "ttl": lambda w: w.sa.key_by("k").process(once, {"v": int}, id="once").view("ttl"),
    "ttl_by_clock": lambda w: w.sa.key_by("k").process(once_by_clock, {"v": int}, id="once2").view("ttl_c"),
}

SA = "TUMBLE(a, ts, INTERVAL '10 seconds')"
SB = "TUMBLE(b, ts, INTERVAL '10 seconds')"
SQL = {
    "q_count": f"SELECT k, count(*) AS n FROM {SA} GROUP BY window_end, k HAVING count(*) > 0",
    "q_distinct_count": f"SELECT window_end, count(DISTINCT v) AS n FROM {SA} GROUP BY window_end",
    "q_distinct_filter": (
        "SELECT window_end, count(DISTINCT v) FILTER (WHERE k > 1) AS n, count(DISTINCT v) AS m"
        f" FROM {SA} GROUP BY window_end"
    ),
    "q_close": (
        f"SELECT window_end, k, count(DISTINCT v) AS n FROM {SA} GROUP BY window_end, k EMIT ON WINDOW CLOSE"
    ),
    "q_sliced": (
        "SELECT window_end, k, count(*) AS n FROM HOP(a, ts, INTERVAL '1 second', INTERVAL '15 seconds')"
        " GROUP BY window_end, k EMIT ON WINDOW CLOSE"
    ),
    "q_distinct": f"SELECT DISTINCT window_end, k + 1 AS k FROM {SA}",
    "q_min_max": (
        "SELECT window_end, min(n) AS lo FROM"
        f" (SELECT window_end, k, count(*) AS n FROM {SA} GROUP BY window_end, k) GROUP BY window_end"
    ),
    "q_top": (
        "SELECT window_end, k, v FROM (SELECT *, row_number() OVER (PARTITION BY window_end ORDER BY v, k) AS r"
        f" FROM {SA}) WHERE r <= 2"
    ),
    "q_over": f"SELECT window_end, sum(v) OVER (PARTITION BY window_end ORDER BY ts, k, v) AS s FROM {SA}",
    "q_hold": (
        f"SELECT window_end, k, v, rank() OVER (PARTITION BY window_end ORDER BY v) AS r FROM {SA}"
        " EMIT ON WINDOW CLOSE"
    ),
    "q_session": "SELECT k, window_end, count(*) AS n FROM SESSION(a, ts, INTERVAL '3 seconds', k) GROUP BY k, window_end",
    "q_session_rows": "SELECT k, v, window_end FROM SESSION(a, ts, INTERVAL '3 seconds', k)",
    "q_join": f"SELECT x.k, y.v FROM {SA} x JOIN {SB} y ON x.k = y.k AND x.window_end = y.window_end",
    "q_left_interval": (
        "SELECT a.k, b.v FROM a LEFT JOIN b ON a.k = b.k"
        " AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5 seconds'"
    ),
    "q_during": "SELECT k, count(*) AS n FROM a WHERE ts > now() - INTERVAL '30 seconds' GROUP BY k",
    "q_python": f"SELECT window_end, sum_up(v) AS n FROM {SA} GROUP BY window_end",
    "q_python_retracting": (
        "SELECT window_end, sum_up(n) AS n FROM"
        f" (SELECT window_end, k, count(*) AS n FROM {SA} GROUP BY window_end, k) GROUP BY window_end"
    ),
    "q_lookup": "SELECT a.k, t.name FROM a JOIN t FOR SYSTEM_TIME AS OF PROCTIME() AS t ON a.k = t.id",
    "q_lookup_changing": (
        "SELECT w.window_end, w.k, w.n, t.name FROM"
        f" (SELECT window_end, k, count(*) AS n FROM {SA} GROUP BY window_end, k) w"
        " LEFT JOIN t FOR SYSTEM_TIME AS OF PROCTIME() AS t ON w.k = t.id"
    ),
    "q_accumulating": (
        f"SELECT window_start, window_end, k, count(*) AS n FROM {SA} GROUP BY window_start, window_end, k"
        " EMIT EARLY EVERY 2 ROWS ACCUMULATING"
    ),
    "q_bag": "SELECT n, count(DISTINCT s) AS m FROM bag GROUP BY n",
}


def opened() -> World:
    clock = ManualClock(int(START.timestamp() * 1e6))
    pond = millpond.open(
        "memory://", engine="inline", clock=clock, durable=False, retain_epochs=1, collect_every=5
    )
    a, b = MemorySource(SCHEMA), MemorySource(SCHEMA)
    w = World(
        pond,
        a,
        b,
        pond.stream("a", a, event_time="ts", delay="5s"),
        pond.stream("b", b, event_time="ts", delay="5s"),
    )
    for define in (*FLOW.values(), *WINDOWED.values()):
        define(w)
    pond.sql("CREATE TABLE t (id bigint PRIMARY KEY, name text); CREATE TABLE bag (n int, s text)")
    pond.function("sum_up", SumUp)
    pond.sql("; ".join(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in SQL.items()))
    return w


def feed(w: World, epoch: int) -> None:
    """Ten seconds of two streams with keys that never come again, and tables of constant size."""
    begin = START + timedelta(seconds=10 * epoch)
    for source, shift in ((w.a, 0), (w.b, 1)):
        source.push(
            [{"k": 4 * epoch + j // 2, "v": j, "ts": begin + timedelta(seconds=j + shift)} for j in range(8)]
        )
    w.pond._clock.advance(EPOCH_US)  # type: ignore[attr-defined]
    w.pond.insert("t", [{"id": epoch, "name": "x"}])
    w.pond.insert("bag", [{"n": epoch, "s": "x"}])
    if epoch >= 4:
        w.pond.delete("t", [{"id": epoch - 4}])
        w.pond.delete("bag", [{"n": epoch - 4, "s": "x"}])
    w.pond.drain()


@dataclass(frozen=True)
class Size:
    rows: int = 0
    bytes: int = 0
    runs: int = 0
    buckets: int = 0


def sizes(pond: Pond) -> dict[str, Size]:
    """Of each table that is no view, after a compaction."""
    pond.compact()
    head = pond.head()
    shown = {view.table for view in pond.plan.views.values()}
    listing = Listing.of(head, pond._worker.pages)
    found = {}
    for node in pond.plan.nodes.values():
        for table in node.binding.tables:
            runs = listing.runs(table.name)
            if table.name not in shown and not isinstance(node.operator, Materialize):
                found[table.name] = Size(
                    sum(r.rows for r in runs),
                    sum(r.bytes for r in runs),
                    len(runs),
                    len({r.bucket for r in runs}),
                )
    return found


@dataclass(frozen=True)
class Grown:
    pond: Pond
    short: dict[str, Size]
    long: dict[str, Size]
    manifests: tuple[int, int]  # bytes of the largest


def grown(epochs: int) -> Grown:
    w = opened()
    manifests: list[int] = []
    w.pond.on_epoch(lambda manifest: manifests.append(len(manifest.encode())))
    for epoch in range(epochs):
        feed(w, epoch)
    short, first = sizes(w.pond), max(manifests)
    manifests.clear()
    for epoch in range(epochs, 3 * epochs):
        feed(w, epoch)
    return Grown(w.pond, short, sizes(w.pond), (first, max(manifests)))


@pytest.fixture(scope="module")
def world() -> Iterator[Grown]:
    found = grown(EPOCHS)
    yield found
    found.pond.close()


def operators() -> dict[str, type]:
    found = {}
    modules = [
        module
        for package in (millpond.operators, millpond.process)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    for module in modules:
        for name, kind in vars(importlib.import_module(module.name)).items():
            own = inspect.isclass(kind) and kind.__module__ == module.name
            if own and hasattr(kind, "bind") and hasattr(kind, "apply") and name != "Operator":
                found[name] = kind
    return found


def not_bounded(found: Grown) -> dict[str, tuple[Size, Size]]:
    """Tables that hold more after three times the stream, by any measure; a little is left to chance."""
    return {
        name: (was, found.long[name])
        for name, was in found.short.items()
        if any(
            getattr(found.long[name], part) > 1.5 * getattr(was, part) + slack
            for part, slack in (("rows", 4), ("bytes", 4096), ("runs", 4), ("buckets", 2))
        )
    }


def test_state_does_not_grow_with_the_stream(world: Grown) -> None:
    assert not_bounded(world) == {}


def test_state_is_used(world: Grown) -> None:
    """A table that never holds a row would prove nothing."""
    empty = {name for name, size in world.short.items() if not size.rows}
    tiers = {
        name for name in empty if "/due." in name or "/ttl." in name
    }  # of deadlines: not all are reached
    elsewhere = {name for name in empty if name.endswith("/late")}  # see test_retention.py
    # Its windows are over when they come; rows leave in order only behind the watermark; all rows are fired.
    over = {"q_hold.over/rows", "sorted/left", "q_accumulating.window.trigger/rows"}
    assert empty - tiers - elsewhere - over == set()


def test_the_manifest_does_not_grow(world: Grown) -> None:
    assert world.manifests[1] < 1.3 * world.manifests[0] + 1024


def test_views_keep_closed_windows(world: Grown) -> None:
    """State goes, results stay: a window of the first epoch is still there after all others (law 1)."""
    first = START + timedelta(seconds=10)
    pond = world.pond
    for name in (
        "count_distinct",
        "sum_distinct_behind",
        "hop",
        "on_close",
        "distinct",
        "top_n",
        "first",
        "reduce",
        "join_windows",
        "join_aggregates",
        "q_distinct_count",
        "q_min_max",
        "q_python",
    ):
        shown = pond.read(name)
        assert first in shown.column("window_end").to_pylist(), name
    assert pond.read("count_distinct").num_rows == 4 * 3 * EPOCHS


def test_every_operator_is_covered(world: Grown) -> None:
    run = {type(node.operator).__name__ for node in world.pond.plan.nodes.values()}
    known = operators()
    assert set(STATELESS) | set(UNBOUNDED) <= set(known), "no such operator"
    assert set(known) - run - set(STATELESS) - set(UNBOUNDED) == set(), "add a case, or say why not"
    keeps = {type(n.operator).__name__ for n in world.pond.plan.nodes.values() if n.binding.tables}
    assert keeps & set(STATELESS) == set(), "it keeps state after all"


@pytest.mark.slow
def test_state_does_not_grow_with_a_long_stream() -> None:
    found = grown(80)
    assert not_bounded(found) == {}
    assert found.manifests[1] < 1.3 * found.manifests[0] + 1024
    found.pond.close()
