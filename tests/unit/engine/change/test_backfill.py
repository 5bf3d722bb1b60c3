"""A program that changes: new views are exact at once, dropped ones are gone, in one commit (laws 1 and 2)."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond.engine.change.backfill import Progress
from millpond.errors import InvalidError
from millpond.flow.stream import Stream
from millpond.plan.change import dependants, plan_change, renamed, swapped, without_views
from millpond.plan.nodes import Plan
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink
from millpond.sources.files import FileSource
from millpond.sources.memory import EventTimeBound, MemorySource
from millpond.sources.nexmark import NexmarkSource
from millpond.state.manifest import history
from millpond.state.manifest.garbage import files_of
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import Manifest
from tests.waiting import until

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def opened(path: Path, **options: Any) -> Pond:
    options = {"durable": False, "checks": True, "poll_ms": 5, **options}
    return millpond.open(path, engine="inline", **options)


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with opened(tmp_path / "pond") as made:
        yield made


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(r.values()) for r in table.to_pylist()), key=repr)


def some(*pairs: tuple[int, int]) -> list[dict[str, int]]:
    return [{"k": k, "v": v} for k, v in pairs]


# -- what comes ------------------------------------------------------------------------


def test_a_view_over_a_table_is_exact_in_the_epoch_that_brings_it(pond: Pond) -> None:
    t = pond.table("t", SCHEMA, key="k")
    pond.insert("t", some((1, 1), (2, 5), (3, 7)))
    pond.drain()
    pond.insert("t", some((2, 6)))
    pond.delete("t", some((3, 0)))
    before = pond.drain()
    with pond.changing():
        t.aggregate(n="count(*)", s="sum(v)", hi="max(v)").view("all")
    head = pond.head()
    assert (head.epoch, head.kind) == (before + 1, "change")
    assert rows(pond.read("all")) == [(2, 7, 6)]
    pond.insert("t", some((9, 9)))
    pond.delete("t", some((2, 0)))
    pond.drain()
    assert rows(pond.read("all")) == [(2, 10, 9)]
    with pytest.raises(InvalidError, match="no view named 'all'"):
        pond.read("all", epoch=before)


def test_weights_are_kept_and_chunks_make_no_difference(tmp_path: Path) -> None:
    for rows_max in (1, 3, 10_000):
        with opened(tmp_path / str(rows_max), epoch_rows_max=rows_max, parallelism=3) as pond:
            t = pond.table("t", SCHEMA)  # a multiset
            for n in range(6):
                pond.insert("t", some((n % 2, 1), (n % 2, 1), (n, n)))
                pond.drain()
            told: list[Progress] = []
            with pond.changing(on_progress=told.append):
                t.key_by("k").aggregate(n="count(*)", d="count(distinct v)", lo="min(v)").view("n")
                t.filter("v > 0").view("some")
                t.distinct().view("different")
            assert rows(pond.read("n")) == [
                (0, 7, 2, 0), (1, 7, 1, 1), (2, 1, 1, 2), (3, 1, 1, 3), (4, 1, 1, 4), (5, 1, 1, 5)
            ]  # fmt: skip
            assert len(rows(pond.read("some"))) == 17
            assert len(rows(pond.read("different"))) == 7
            assert told[-1].rows == told[-1].total
            assert (len(told) >= 3) == (rows_max < 10)
            assert pond.progress.backfill is None
            # One run a row: what a subscriber is told is what the view holds.
            (first,) = [d for d in pond.changes("n", pond.epoch - 1)]
            assert rows(first.table) == [(*row, 1) for row in rows(pond.read("n"))]


def test_joins_rankings_and_views_over_views(pond: Pond) -> None:
    left = pond.table("l", SCHEMA, key="k")
    right = pond.table("r", pa.schema([("k", pa.int64()), ("w", pa.string())]))
    sums = left.key_by("v").aggregate(id="by_v", n="count(*)")
    joined = left.join(right, on="k", kind="left", id="j")
    joined.view("joined")
    pond.insert("l", some((1, 10), (2, 20), (3, 10)))
    pond.insert("r", [{"k": 1, "w": "a"}, {"k": 1, "w": "b"}, {"k": 9, "w": "c"}])
    pond.drain()
    with pond.changing():
        joined.key_by("w").aggregate(n="count(*)").view("per_w")
        left.join(right, on="k", kind="anti").view("alone")
        left.top_n(2, ["v desc", "k"]).view("top")
        sums.view("sums")
        sums.filter("n > 1").view("often")

    def check() -> None:
        held = rows(pond.read("l"))
        pairs = rows(pond.read("r"))
        met = {k for k, _ in pairs}
        assert rows(pond.read("alone")) == [r for r in held if r[0] not in met]
        assert rows(pond.read("top")) == sorted(sorted(held, key=lambda r: (-r[1], r[0]))[:2])
        per_v = {v: sum(1 for r in held if r[1] == v) for _, v in held}
        assert rows(pond.read("sums")) == sorted(per_v.items())
        assert rows(pond.read("often")) == sorted((v, n) for v, n in per_v.items() if n > 1)
        words = [w for k, _ in held for w in ([p[1] for p in pairs if p[0] == k] or [None])]
        assert rows(pond.read("per_w")) == sorted([(w, words.count(w)) for w in set(words)], key=repr)

    check()
    pond.insert("l", some((1, 30), (4, 20)))
    pond.delete("r", [{"k": 1, "w": "a"}])
    pond.drain()
    check()


def test_a_new_view_over_files_that_were_read(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(3):
        pq.write_table(pa.Table.from_pylist(some((n, n), (n, 2 * n)), SCHEMA), folder / f"{n}.parquet")
    with opened(tmp_path / "p", epoch_rows_max=2) as pond:
        stream = pond.stream("in", FileSource(folder))
        stream.key_by("k").aggregate(n="count(*)").view("n")
        pond.drain()
        with pond.changing():
            stream.filter("v > 1").view("big")
            stream.key_by("k").aggregate(s="sum(v)").view("s")
        assert rows(pond.read("s")) == [(0, 0), (1, 3), (2, 6)]
        assert rows(pond.read("big")) == [(1, 2), (2, 2), (2, 4)]
        pq.write_table(pa.Table.from_pylist(some((1, 7)), SCHEMA), folder / "3.parquet")
        pond.drain()
        assert rows(pond.read("s")) == [(0, 0), (1, 10), (2, 6)]
        (folder / "1.parquet").unlink()
        # A view holds these rows: the file is not needed.
        with pond.changing():
            pond_big = Stream(pond._builder, "big.view")
            pond_big.aggregate(n="count(*)").view("bigs")
        assert rows(pond.read("bigs")) == [(4,)]
        with (
            pytest.raises(InvalidError, match="the program was not changed") as caught,
            pond.changing(),
        ):
            stream.filter("v > 2").view("bigger")
        assert "file '1.parquet' was read, and is gone now" in (caught.value.detail or "")
        pond.drain()  # and the pond goes on
        assert "bigger" not in pond.views()


def test_a_nexmark_stream_is_made_again(tmp_path: Path) -> None:
    with opened(tmp_path / "p") as pond:
        bids = pond.stream("bid", NexmarkSource("bid", events=2000))
        bids.key_by("auction").aggregate(n="count(*)").view("n")
        pond.drain()
        with pond.changing():
            bids.aggregate(n="count(*)").view("all")
        assert rows(pond.read("all")) == [(sum(n for _, n in rows(pond.read("n"))),)]


def test_errors_of_a_step_that_is_computed_again_are_on_record_already(pond: Pond) -> None:
    t = pond.table("t", SCHEMA)
    old = t.select("k", q="(CASE v WHEN 0 THEN 'no' ELSE '7' END)::bigint", id="old")
    old.key_by("k").aggregate(n="count(q)").view("n")
    pond.insert("t", some((1, 0), (2, 5)))
    pond.drain()
    errors, counts = rows(pond.errors()), pond.head().counts
    assert len(errors) == 1
    with pond.changing():
        old.key_by("q").aggregate(n="count(q)").view("m")
    assert rows(pond.read("m")) == [(7, 1)]
    assert rows(pond.errors()) == errors
    assert pond.head().counts == counts


def test_errors_of_a_new_step_are_its_own_and_go_with_it(pond: Pond) -> None:
    t = pond.table("t", SCHEMA)
    t.select("k", q="(CASE v WHEN 0 THEN 'no' ELSE '10' END)::bigint", id="old").view("q")
    pond.insert("t", some((1, 0), (2, 5)))
    pond.drain()
    had = rows(pond.errors())
    assert len(had) == 1
    with pond.changing():
        t.select("k", q="(CASE v WHEN 0 THEN 'no' ELSE '20' END)::bigint", id="new").view("r")
    assert len(rows(pond.errors())) == 2
    assert pond.head().counts["errors/new"] == 1
    pond.drop_view("r")
    assert rows(pond.errors()) == had
    assert "errors/new" not in pond.head().counts
    with pond.changing():
        t.select("k", q="(CASE v WHEN 0 THEN 'no' ELSE '20' END)::bigint", id="new").view("r")
    assert len(rows(pond.errors())) == 2


AT = pa.schema([("t", pa.timestamp("us")), ("k", pa.int64())])


def at(second: int, k: int) -> dict[str, Any]:
    return {"t": dt.datetime(2026, 1, 1) + dt.timedelta(seconds=second), "k": k}


def test_rows_that_were_late_do_not_come_back(pond: Pond) -> None:
    """Law 1 over a source that is read again: all rows admitted, less those that the watermark listed."""
    source = MemorySource(AT)
    stream = pond.stream("in", source, event_time="t", delay="5s")
    stream.key_by("k").aggregate(n="count(*)").view("n")
    source.push([at(0, 1), at(3, 1), at(100, 2)])
    pond.drain()
    source.push(
        [at(3, 1), at(3, 1), at(90, 1), at(96, 1), {"t": None, "k": 1}]
    )  # three of them late, one bad
    pond.drain()
    assert pond.late("in.watermark").num_rows == 3
    errors = rows(pond.errors())
    with pond.changing():
        stream.key_by("k").aggregate(id="again", n="count(*)").view("again")
        stream.tumble("10s").key_by("window_end").aggregate(n="count(*)").view("windows")
        stream.tumble("10s").key_by("window_end").aggregate(n="count(*)", on_close=True).view("closed")
        stream.late().key_by("k").aggregate(n="count(*)").view("late")
    assert rows(pond.read("again")) == rows(pond.read("n")) == [(1, 3), (2, 1)]
    assert rows(pond.read("late")) == [(1, 3)]
    assert rows(pond.errors()) == errors
    ends = {
        r["window_end"].second + 60 * r["window_end"].minute: r["n"] for r in pond.read("windows").to_pylist()
    }
    assert ends == {10: 2, 100: 1, 110: 1}
    bound = pond.head().watermarks["in.watermark"]["bound"] // 1_000_000 % 3600
    assert bound == 95
    closed = pond.read("closed").to_pylist()
    assert [(r["window_end"].second, r["n"]) for r in closed] == [(10, 2)]
    source.push([at(120, 3)])
    pond.drain()
    assert len(rows(pond.read("closed"))) == 3


def test_a_new_watermark_takes_the_past_as_one_epoch(tmp_path: Path) -> None:
    """However it is cut into chunks: a window is shown once, and whole."""
    source = MemorySource(AT)
    with opened(tmp_path / "pond", epoch_rows_max=1) as pond:
        stream = pond.stream("in", source)
        stream.key_by("k").aggregate(n="count(*)").view("n")
        source.push([at(100, 1), at(3, 1)], [at(3, 1)], EventTimeBound(0), [at(100, 1), at(4, 1)])
        pond.drain()
        with pond.changing():
            marked = stream.watermark("t", "5s", id="w")
            windows = marked.tumble("10s").key_by("window_end")
            windows.aggregate(n="count(*)", on_close=True).view("closed")
        assert pond.head().metrics["backfill"]["chunks"] > 3
        assert pond.late("w").num_rows == 0
        assert [r["n"] for r in pond.read("closed").to_pylist()] == [3]
        source.push([at(20, 1)])
        pond.drain()
        assert pond.late("w").num_rows == 1


def test_what_cannot_be_found_again_is_refused_and_changes_nothing(pond: Pond) -> None:
    source = MemorySource(SCHEMA)
    stream = pond.stream("in", source)
    stream.key_by("k").aggregate(n="count(*)").view("n")
    source.push(some((1, 1)))
    epoch = pond.drain()

    def keep(row: Any) -> Iterator[Any]:
        yield {"k": row["k"]}

    with (
        pytest.raises(InvalidError, match="step 'p' is new, but its input was already read"),
        pond.changing(),
    ):
        stream.key_by("k").process(keep, pa.schema([("k", pa.int64())]), id="p").view("p")
    other = opened(Path(pond.store.uri.removeprefix("file://")).with_name("other"))
    other.stream("in", source).key_by("v").aggregate(n="count(*)", id="in.by-k").view("n")
    with pytest.raises(InvalidError, match=r"step 'in\.by-k' has another definition"):
        pond.change(other.plan)
    assert pond.epoch == epoch
    assert pond.views() == ["n"]


def test_what_process_steps_gave_is_read_from_the_views_that_hold_it(pond: Pond) -> None:
    source = MemorySource(SCHEMA)
    stream = pond.stream("in", source)

    def last(row: Any, seen: Any = millpond.ValueState(int, default=0)) -> Iterator[Any]:
        seen.value += 1
        yield {"k": row["k"], "n": seen.value}

    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    given = stream.key_by("k").process(last, schema, id="given")
    given.view("given")

    def other(row: Any) -> Iterator[Any]:
        yield {"k": row["k"], "n": row["v"]}

    bare = stream.key_by("k").process(other, schema, id="bare")
    source.push(some((1, 1), (1, 2), (2, 1)))
    pond.drain()
    with pond.changing():
        given.key_by("k").aggregate(most="max(n)").view("most")
    assert rows(pond.read("most")) == [(1, 2), (2, 1)]
    source.push(some((1, 1)))
    pond.drain()
    assert rows(pond.read("most")) == [(1, 3), (2, 1)]
    with pytest.raises(InvalidError, match="what step 'bare' gave so far is not stored"), pond.changing():
        bare.key_by("k").aggregate(most="max(n)").view("never")
    source.push(some((2, 1)))
    pond.drain()
    assert rows(pond.read("most")) == [(1, 3), (2, 2)]


# -- when ------------------------------------------------------------------------------


def test_before_the_first_run(pond: Pond) -> None:
    t = pond.table("t", SCHEMA)
    with pond.changing():
        t.key_by("k").aggregate(n="count(*)").view("n")
    pond.insert("t", some((1, 1)))
    pond.drain()
    assert rows(pond.read("n")) == [(1, 1)]


def test_in_the_background_and_from_on_epoch(tmp_path: Path) -> None:
    with opened(tmp_path / "p") as pond:
        t = pond.table("t", SCHEMA)
        pond.insert("t", some((1, 1)))
        pond.start()
        pond.flush()
        with pond.changing():
            t.key_by("k").aggregate(n="count(*)").view("n")
        assert rows(pond.read("n")) == [(1, 1)]
        done: list[int] = []

        def also(manifest: Manifest) -> None:
            if not done and manifest.counts.get("rows/t", 0) == 2:
                done.append(manifest.epoch)
                with pond.changing():
                    t.key_by("v").aggregate(n="count(*)").view("m")

        pond.on_epoch(also)
        pond.insert("t", some((1, 2)))
        pond.drain()
        assert done
        assert rows(pond.read("m")) == [(1, 1), (2, 1)]
        pond.insert("t", some((1, 2)))
        pond.flush()
        assert rows(pond.read("m")) == [(1, 1), (2, 2)]
        assert rows(pond.read("n")) == [(1, 3)]


def test_a_pond_that_is_stopped_does_not_wait_for_a_long_backfill(tmp_path: Path) -> None:
    with opened(tmp_path / "p", epoch_rows_max=1) as pond:
        t = pond.table("t", SCHEMA)
        pond.insert("t", some(*[(n, n) for n in range(30)]))
        pond.drain()
        pond.start()
        chunks: list[int] = []
        failed: list[BaseException] = []

        def slowly(progress: Progress) -> None:
            chunks.append(progress.chunks)
            pond._execution.stopping.set()

        def ask() -> None:
            try:
                with pond.changing(on_progress=slowly):
                    t.key_by("k").aggregate(n="count(*)").view("n")
            except BaseException as error:
                failed.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: chunks)
        pond.stop()
        asking.join(120)
        assert chunks == [1]
        assert "stopped before its program changed" in str(failed[0])
        assert "n" not in pond.views()
        pond.drain()  # it is in the inbox: it goes on
        assert len(rows(pond.read("n"))) == 30


def test_a_process_that_defines_more_fills_it_when_it_takes_over(tmp_path: Path) -> None:
    def defined(pond: Pond, more: bool) -> None:
        t = pond.table("t", SCHEMA, key="k")
        t.key_by("v").aggregate(n="count(*)").view("n")
        if more:
            t.aggregate(n="count(*)").view("all")

    with opened(tmp_path / "p") as pond:
        defined(pond, False)
        pond.insert("t", some((1, 1), (2, 1)))
        pond.drain()
    with opened(tmp_path / "p") as pond:
        defined(pond, True)
        pond.drain()
        assert rows(pond.read("all")) == [(2,)]
        assert [e.kind for e in pond.epochs()][-2:] == ["takeover", "change"]
    with opened(tmp_path / "p") as pond:
        defined(pond, True)
        pond.insert("t", some((3, 1)))
        pond.drain()
        assert rows(pond.read("all")) == [(3,)]
    with opened(tmp_path / "p") as pond:
        defined(pond, False)
        with pytest.raises(InvalidError, match="is in the pond but not in this pipeline"):
            pond.drain()


@pytest.mark.slow
def test_another_process_may_ask_for_it(tmp_path: Path) -> None:
    with opened(tmp_path / "p", lease_ms=200) as pond:
        t = pond.table("t", SCHEMA)
        t.key_by("k").aggregate(n="count(*)", id="by_k").view("n")
        pond.insert("t", some((1, 1), (1, 2)))
        pond.start()
        pond.flush()
        program = """
import sys, millpond
from millpond.flow.stream import Stream
with millpond.open(sys.argv[1], engine="inline", durable=False, lease_ms=200) as pond:
    with pond.changing():
        Stream(pond._builder, "t.rows").key_by("v").aggregate(s="sum(k)").view("s")
        pond.drop_view("n")
    print(pond.views(), pond.read("s").num_rows)
"""
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "p")], capture_output=True, text=True, timeout=60
        )
        assert done.stdout == "['s', 't'] 2\n", done.stderr
        assert pond.views() == ["s", "t"]
        pond.insert("t", some((5, 2)))
        pond.flush()
        assert rows(pond.read("s")) == [(1, 1), (2, 6)]


# -- what goes -------------------------------------------------------------------------


def test_a_dropped_view_leaves_the_listing_and_history_keeps_it(pond: Pond) -> None:
    t = pond.table("t", SCHEMA, key="k")
    t.key_by("v").aggregate(n="count(*)", id="by_v").view("n")
    pond.insert("t", some((1, 1), (2, 1)))
    before = pond.drain()
    pond.drop_view("n")
    head = pond.head()
    tables = Listing.of(head, pond._worker.pages).tables()
    assert tables == ["t.rows/rows"]
    assert pond.views() == ["t"]
    assert rows(pond.read("n", epoch=before)) == [(1, 2)]
    pond.insert("t", some((3, 1)))
    pond.compact()
    pond.drain()
    pond.rollback(before)
    assert pond.views() == ["n", "t"]
    assert rows(pond.read("n")) == [(1, 2)]
    pond.insert("t", some((4, 4)))
    pond.drain()
    assert rows(pond.read("n")) == [(1, 2), (4, 1)]
    # And on to an epoch without it.
    pond.rollback(head.epoch)
    assert pond.views() == ["t"]
    assert "by_v" not in pond.plan.nodes


def test_a_rollback_to_before_a_view_came_takes_it_back(tmp_path: Path) -> None:
    with opened(tmp_path / "p") as pond:
        t = pond.table("t", SCHEMA, key="k")
        pond.insert("t", some((1, 1)))
        before = pond.drain()
        with pond.changing():
            t.key_by("v").aggregate(n="count(*)").view("n")
        after = pond.epoch
        pond.insert("t", some((2, 1)))
        pond.drain()
        pond.rollback(before)
        assert pond.views() == ["t"]
        assert rows(pond.read("t")) == [(1, 1)]
        pond.insert("t", some((5, 5)))
        pond.drain()
        assert rows(pond.read("n", epoch=after)) == [(1, 1)]
        pond.rollback(after)
        pond.insert("t", some((6, 6)))
        pond.drain()
        assert rows(pond.read("n")) == [(1, 1), (6, 1)]


def test_what_others_use_is_not_dropped(pond: Pond) -> None:
    t = pond.table("t", SCHEMA)
    n = t.key_by("k").aggregate(n="count(*)").view("n")
    n.filter("n > 1").view("often").sink("out", CallbackSink(lambda *a: None))
    assert dependants(pond.plan, ["t"]) == ("n", "often", "out")
    with pytest.raises(InvalidError, match="view 't' cannot be dropped, others use it") as caught:
        pond.drop_view("t")
    assert caught.value.detail == "n, often, out"
    pond.drain()
    with pytest.raises(InvalidError, match="view 'n' cannot be dropped"):
        pond.drop_view("n")
    pond.drop_view("n", cascade=True)
    assert pond.views() == ["t"]
    assert set(pond.plan.nodes) == {"t", "t.rows"}
    assert not pond.plan.sinks
    with pytest.raises(InvalidError, match="no view named 'n'"):
        pond.drop_view("n")


def test_a_step_that_comes_again_begins_anew(pond: Pond) -> None:
    source = MemorySource(SCHEMA)
    pond.stream("in", source).view("v")
    pond.table("t", SCHEMA)
    source.push(some((1, 1)))
    pond.insert("t", some((1, 1)))
    pond.drain()
    with pond.changing():
        pond.drop_view("v")
        pond.drop_view("t")
        pond.table("u", SCHEMA)
    assert "in" not in pond.head().positions
    pond.insert("u", some((1, 1)))
    pond.drain()
    with pond.changing():
        pond.stream("in", source).view("v")
        pond.table("t", SCHEMA)
    pond.drain()
    assert rows(pond.read("v")) == [(1, 1)]  # read from its beginning
    assert rows(pond.read("t")) == []


# -- names -----------------------------------------------------------------------------


def test_renames_and_swaps_move_no_row_and_are_told_as_a_difference(pond: Pond) -> None:
    told: dict[str, list[tuple[Any, ...]]] = {}

    def tell(name: str) -> CallbackSink:
        def deliver(id: str, delta: pa.Table) -> None:
            told.setdefault(name, []).extend(tuple(r.values()) for r in delta.to_pylist())

        return CallbackSink(deliver)

    t = pond.table("t", SCHEMA)
    t.filter("v > 1").view("a").sink("of_a", tell("of_a"))
    t.filter("v > 2").view("b").sink("of_b", tell("of_b"))
    pond.insert("t", some((1, 1), (2, 2), (3, 3)))
    pond.drain()
    pond.swap_views("a", "b")
    pond.drain()
    assert rows(pond.read("a")) == [(3, 3)]
    assert rows(pond.read("b")) == [(2, 2), (3, 3)]
    assert not pond.head().added
    assert told["of_a"][-1] == (2, 2, -1)
    assert told["of_b"][-1] == (2, 2, 1)
    epoch = pond.epoch
    assert rows(pond.diff("a", epoch - 2, epoch)) == [(2, 2, -1)]
    pond.rename_view("a", "c")
    pond.insert("t", some((4, 4)))
    pond.drain()
    assert told["of_a"][-1] == (4, 4, 1)  # the sink went with it
    assert pond.views() == ["b", "c", "t"]
    with pytest.raises(InvalidError, match="there is a view 'b' already"):
        pond.rename_view("c", "b")


def test_a_sink_of_a_new_view_begins_with_all_rows(pond: Pond) -> None:
    told: list[tuple[Any, ...]] = []

    def deliver(id: str, delta: pa.Table) -> None:
        told.extend(tuple(r.values()) for r in delta.to_pylist())

    t = pond.table("t", SCHEMA)
    pond.insert("t", some((1, 1), (2, 2)))
    pond.drain()
    with pond.changing():
        t.filter("v > 0").view("a").sink("out", CallbackSink(deliver))
    pond.drain()
    assert sorted(told) == [(1, 1, 1), (2, 2, 1)]
    pond.insert("t", some((3, 3)))
    pond.drain()
    assert sorted(told) == [(1, 1, 1), (2, 2, 1), (3, 3, 1)]


# -- crashes ---------------------------------------------------------------------------


def _uncollected(pond: Pond) -> set[str]:
    """Run files of older terms that no retained epoch needs."""
    assert pond._runner is not None
    pond._runner.drain(settle=True)  # no collection is under way
    needed: set[str] = set()
    for epoch in history.epochs(pond.store):
        needed |= files_of(history.read_manifest(pond.store, epoch), pond._worker.pages)
    old = {n for n in pond.store.list("runs/") if int(n.split("/")[1]) < pond.head().token}
    return old - needed


def test_a_crash_at_any_write_leaves_the_old_pond_or_the_new(tmp_path: Path) -> None:
    source_rows = some(*[(n % 3, n) for n in range(20)])

    outcomes = []
    for last in range(100):
        path = tmp_path / str(last)
        with opened(path, epoch_rows_max=4) as pond:
            t = pond.table("t", SCHEMA)
            pond.insert("t", source_rows)
            pond.drain()
            before = pond.epoch
            wanted = _with_sums(pond, t)
            writes = 0
            put = pond.store.put_new

            def failing(name: str, data: Any, put: Any = put, last: int = last) -> Any:
                nonlocal writes
                if threading.current_thread() is not threading.main_thread():
                    return put(name, data)  # the lease is renewed beside it
                writes += 1
                if writes > last:
                    raise KeyboardInterrupt
                return put(name, data)

            pond.store.put_new = failing  # type: ignore[method-assign]
            try:
                pond.change(wanted)
                crashed = False
            except KeyboardInterrupt:
                crashed = True
            pond.store.put_new = put  # type: ignore[method-assign]
        with opened(path, retain_epochs=1, collect_every=1) as pond:
            assert pond.epoch >= before
            done = "sums" in pond.views()
            outcomes.append(done)
            pond.insert("t", some((1, 100)))
            pond.drain()  # what was asked for durably is done now; what was not is not
            if "sums" in pond.views():
                assert rows(pond.read("sums")) == [(0, 63), (1, 170), (2, 57)]
            for _ in range(40):  # collections run beside the epochs: on a busy machine some come later
                pond.insert("t", some((5, 0)))
                pond.drain()
                if not _uncollected(pond):
                    break
            assert not _uncollected(pond), "what the crash left was not collected"
        if not crashed:
            break
    assert outcomes == sorted(outcomes)
    assert outcomes[-1]
    assert not outcomes[0]
    assert len(outcomes) > 10


def _with_sums(pond: Pond, t: Stream) -> Any:
    from millpond.flow.builder import Builder

    builder = Builder()
    builder.reopen(pond.plan)
    Stream(builder, t.step).key_by("k").aggregate(s="sum(v)").view("sums")
    return builder.plan


# -- plans alone -----------------------------------------------------------------------


def test_plans_are_compared_and_edited(pond: Pond) -> None:
    t = pond.table("t", SCHEMA)
    t.key_by("k").aggregate(n="count(*)", id="by_k").view("n")
    full = pond.plan
    less = without_views(full, ["n"])
    change = plan_change(full, less)
    assert (change.new, change.gone, change.tables_gone) == (set(), {"by_k"}, {"by_k/groups"})
    back = plan_change(less, full)
    assert (back.new, back.gone) == ({"by_k"}, set())
    assert renamed(full, "n", "m").views["m"].step == "by_k"
    assert swapped(full, "n", "t").views["t"].step == "by_k"
    assert set(without_views(full, ["n"], keep=["by_k"]).nodes) == set(full.nodes)
    broken = Plan({"by_k": full.nodes["by_k"]}, {}, {})
    with pytest.raises(InvalidError, match=r"'t\.rows' cannot be removed, others use it") as caught:
        plan_change(full, broken)
    assert caught.value.detail == "step 'by_k'"
