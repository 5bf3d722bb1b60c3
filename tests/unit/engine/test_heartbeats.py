"""Punctuations and heartbeats: rows that only say which time was reached."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import Process
from millpond.clock import ManualClock
from millpond.errors import InvalidError
from millpond.sources.memory import MemorySource
from millpond.watermarks import inherited
from millpond.windows import sliding, tumbling
from tests.unit.engine.test_watermark_partitions import SCHEMA, SECOND, bound, late, rows
from tests.unit.engine.test_watermark_progress import closed, opened, windows

WITH_KIND = pa.schema([*SCHEMA, ("kind", pa.string())])


def kinds(kind: str, *seconds: float) -> list[dict[str, Any]]:
    return [{"at": int(s * SECOND), "v": int(s), "kind": kind} for s in seconds]


def test_windows_do_not_contain_punctuations(tmp_path: Path) -> None:
    """Windows read rows from in front of the watermark step, which takes the punctuations out."""
    source = MemorySource(WITH_KIND)
    with opened(tmp_path) as pond:
        stream = pond.stream("s", source, event_time="at", delay="1h", punctuation="kind = 'heartbeat'")
        windowed = stream.select("at", "v").key_by().window(tumbling("10s"))
        windowed.aggregate(n="count(*)").view("counts")
        windowed.late().view("late_of_windows")
        stream.late().view("late")
        source.push(kinds("row", 3, 4))
        source.push(kinds("heartbeat", 12))
        pond.drain()
        assert pond.read("counts").column("n").to_pylist() == [2]
        source.push(kinds("row", 5))
        source.push(kinds("heartbeat", 6))
        pond.drain()
        assert pond.read("late_of_windows").column("v").to_pylist() == [5]
        assert pond.read("late").column("v").to_pylist() == [5]
        assert pond.head().counts["late/s.watermark"] == 1


def test_a_union_says_where_its_late_rows_are(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        both = pond.stream("one", MemorySource(SCHEMA), event_time="at").union(
            pond.stream("two", MemorySource(SCHEMA), event_time="at")
        )
        with pytest.raises(InvalidError, match="each of its inputs has"):
            both.late()


# -- promises of a source that has rows to read -----------------------------------------------------


@pytest.mark.parametrize("how", ["finish", "advance"])
def test_a_promise_does_not_make_rows_late_that_were_sent_before_it(tmp_path: Path, how: str) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path, epoch_rows_max=5) as pond:
        windows(pond.stream("s", source, event_time="at", delay="5s"))
        pond.drain()
        for second in range(20):
            source.push(rows(second))
        if how == "finish":
            pond.finish("s")
        else:
            pond.advance("s", 20 * SECOND)
        assert (closed(pond), late(pond), pond.head().promised) == ([10, 10], 0, {})
        assert pond.replay(pond.head().epoch).same


def test_a_promise_for_a_source_that_waits_for_a_slower_one(tmp_path: Path) -> None:
    """What alignment withholds was sent before the promise."""
    one, two = MemorySource(SCHEMA), MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        first = pond.stream("one", one, event_time="at", delay="0s", max_drift="1m")
        second = pond.stream("two", two, event_time="at", delay="0s", max_drift="1m")
        first.union(second).view("v")
        one.push(rows(100))
        two.push(rows(10))
        pond.drain()
        one.push(rows(101))
        pond.finish("one")
        assert (pond.read("v").num_rows, list(pond.head().promised)) == (2, ["one"])
        two.push(rows(90))
        pond.drain()
        two.push(rows(91))
        pond.drain()
        assert (pond.read("v").num_rows, late(pond, "one.watermark")) == (5, 0)
        assert pond.head().promised == {}


# -- heartbeats from another source -----------------------------------------------------------------


def test_heartbeats_of_another_source_move_the_watermark(tmp_path: Path) -> None:
    orders, beats = MemorySource(SCHEMA), MemorySource(pa.schema([("at", pa.timestamp("us"))]))

    def define(pond: Any) -> None:
        said = pond.stream("beats", beats, event_time="at")
        windows(pond.stream("orders", orders, event_time="at", delay="1h", heartbeats=said))

    with opened(tmp_path, epoch_rows_max=5) as pond:
        define(pond)
        for second in range(12):
            orders.push(rows(second))
        beats.push([{"at": 11 * SECOND}])
        pond.drain()  # the heartbeat is read long before the last order
        assert (bound(pond, "orders.watermark"), closed(pond)) == (11, [10])
        assert late(pond, "orders.watermark") == 0
        assert pond.replay(pond.head().epoch).same
        assert "heartbeats of beats.watermark" in pond.explain()
    with opened(tmp_path) as pond:
        define(pond)
        pond.drain()
        epoch = pond.head().epoch
        beats.push([{"at": 20 * SECOND}])
        pond.drain()
        assert (bound(pond, "orders.watermark"), closed(pond)) == (20, [2, 10])
        assert pond.head().epoch == epoch + 2
        orders.push(rows(19, 21))
        pond.drain()
        assert late(pond, "orders.watermark") == 1
        pond.finish("beats")
        assert bound(pond, "orders.watermark") == 20  # heartbeats that end say nothing of the orders


def test_heartbeats_need_a_time(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        beats = pond.stream("beats", MemorySource(SCHEMA))
        with pytest.raises(InvalidError, match="heartbeats needs a watermark"):
            pond.stream("orders", MemorySource(SCHEMA), event_time="at", heartbeats=beats)


# -- watermarks behind process and in_order -----------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows_behind_process_close_by_the_watermark_of_its_input(tmp_path: Path, parallelism: int) -> None:
    source = MemorySource(SCHEMA)

    def older(row: Any) -> dict[str, Any]:
        return {
            "v": row.v,
            "at": row.at - datetime.timedelta(seconds=100 if row.v == 2 and row.at.second == 29 else 0),
        }

    def define(pond: Any) -> None:
        stream = pond.stream("s", source, event_time="at", delay="5s")
        made = stream.key_by("v").process(older, {"v": int, "at": datetime.datetime}, id="older")
        after = made.watermark("at", inherited(), id="after")
        after.key_by().window(tumbling("10s"), on_close=True).aggregate(n="count(*)").view("closed")
        after.late().view("late")

    with opened(tmp_path, parallelism=parallelism) as pond:
        define(pond)
        source.push(rows(3, 4, 12))
        pond.drain()
        assert (bound(pond, "after"), closed(pond)) == (7, [])
        source.push(rows(15))
        pond.drain()
        assert (bound(pond, "after"), closed(pond)) == (10, [2])  # in the epoch that brings the row
        assert pond.replay(pond.head().epoch).same
        assert "watermark for all rows of s: inherited from s.watermark" in pond.explain()
    with opened(tmp_path, parallelism=parallelism) as pond:
        define(pond)
        source.push(rows(30, 31, 29))
        pond.drain()
        assert (pond.read("late").column("v").to_pylist(), closed(pond)) == ([2], [2, 2])
        pond.finish("s")
        assert closed(pond) == [2, 2, 2]


def test_a_union_of_an_idle_inherited_watermark_goes_on(tmp_path: Path) -> None:
    one, two, clock = MemorySource(SCHEMA), MemorySource(SCHEMA), ManualClock(0)
    with opened(tmp_path, clock) as pond:
        first = pond.stream("one", one, event_time="at", delay="0s", idle="30s")
        made = first.key_by("v").process(lambda row: {"at": row.at, "v": row.v}, SCHEMA, id="made")
        second = pond.stream("two", two, event_time="at", delay="0s", idle="30s")
        windows(made.watermark("at", inherited(), id="after").union(second))
        one.push(rows(5))
        two.push(rows(6))
        pond.drain()
        clock.advance(30 * SECOND)
        two.push(rows(61))
        pond.drain()
        assert (bound(pond, "after"), closed(pond)) == (61, [2])


def test_nothing_to_inherit(tmp_path: Path) -> None:
    with opened(tmp_path) as pond, pytest.raises(InvalidError, match="no watermark to inherit"):
        pond.stream("s", MemorySource(SCHEMA)).watermark("at", inherited())


def test_windows_behind_in_order_with_slack_close(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        ordered = pond.stream("s", source, event_time="at", delay="5s").key_by().in_order(slack=2)
        ordered.window(tumbling("10s"), on_close=True).aggregate(n="count(*)").view("closed")
        source.push(rows(3, 4, 12, 14))
        pond.drain()
        assert closed(pond) == []
        source.push(rows(11, 15))
        pond.drain()
        assert closed(pond) == [2]
        pond.finish("s")
        assert closed(pond) == [2, 4]


@pytest.mark.parametrize("how", ["map", "flat_map", "map_batches", "process"])
def test_windows_keep_the_watermark_behind_functions_that_pass_the_time_on(tmp_path: Path, how: str) -> None:
    source, calls = MemorySource(SCHEMA), []

    def same(row: Any) -> dict[str, Any]:
        calls.append(row.at)
        return {"at": row.at, "w": row.v}

    kinds = {"at": datetime.datetime, "w": int}
    with opened(tmp_path) as pond:
        stream = pond.stream("s", source, event_time="at", delay="5s")
        made = {
            "map": lambda: stream.map(same, kinds),
            "flat_map": lambda: stream.flat_map(lambda row: [same(row)], kinds),
            "map_batches": lambda: stream.map_batches(lambda rows: rows.rename_columns(["at", "w"]), kinds),
            "process": lambda: stream.key_by("v").process(same, kinds),
        }[how]()
        late_ones = "0s" if how == "process" else "5s"  # a step with state has not seen late rows
        windowed = made.key_by().window(tumbling("10s"), allowed_lateness=late_ones)
        windowed.aggregate(n="count(*)").view("counts")
        windowed.late().view("too_late")
        made.key_by().window(tumbling("10s"), on_close=True).aggregate(n="count(*)").view("closed")
        source.push(rows(3, 4))
        pond.drain()
        assert closed(pond) == []
        source.push(rows(17))
        pond.drain()
        assert closed(pond) == [2]
        source.push(rows(5))
        pond.drain()
        assert closed(pond, "counts") == ([1, 2] if how == "process" else [1, 3])
        source.push(rows(30, 6))
        pond.drain()
        source.push(rows(7))
        pond.drain()
        assert pond.read("too_late").num_rows == (0 if how == "process" else 1)
        assert len(calls) == (0 if how == "map_batches" else 4 if how == "process" else 7)


def test_a_function_that_does_not_return_the_time_has_no_watermark(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        stream = pond.stream("s", MemorySource(SCHEMA), event_time="at")
        made = stream.map(lambda row: {"w": 1}, {"w": int})
        with pytest.raises(InvalidError, match="no time column"):
            made.key_by().window(tumbling("10s"))


def test_a_bad_row_between_the_watermark_and_a_window_is_one_error_row(tmp_path: Path) -> None:
    source = MemorySource(WITH_KIND)
    with opened(tmp_path) as pond:
        stream = pond.stream("s", source, event_time="at", delay="5s")
        numbers = stream.with_columns(number="cast(kind as int)").filter("number > 0")
        numbers.key_by().window(tumbling("10s")).aggregate(n="sum(number)").view("sums")
        source.push([*kinds("5", 1), *kinds("five", 2)])
        pond.drain()
        assert pond.read("sums").column("n").to_pylist() == [5]
        assert pond.errors().num_rows == 1
        with pond.changing():
            numbers.view("numbers")  # now somebody reads them
        assert pond.read("numbers").column("number").to_pylist() == [5]


class Reminds(Process):
    def on_row(self, row: Any, ctx: Any) -> None:
        ctx.set_timer("reminder", row.window_end + datetime.timedelta(seconds=20))

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        yield {"at": ctx.watermark}


@pytest.mark.parametrize("windows", [tumbling("10s"), sliding("10s", "1s")], ids=["tumbling", "slices"])
def test_timers_behind_windows_of_a_union_wait_for_all_of_its_watermarks(
    tmp_path: Path, windows: Any
) -> None:
    one, two = MemorySource(SCHEMA), MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        first = pond.stream("one", one, event_time="at", delay="0s")
        both = first.union(pond.stream("two", two, event_time="at", delay="0s"))
        counted = both.key_by("v").window(windows, on_close=True).aggregate(n="count(*)")
        counted.key_by("v").process(Reminds, {"at": datetime.datetime}).view("reminders")
        one.push(rows(1, 100))
        two.push(rows(2))
        pond.drain()
        two.push(rows(21))
        pond.drain()
        assert pond.read("reminders").num_rows == 0
        two.push(rows(60))
        pond.drain()
        assert pond.read("reminders").num_rows > 0
        told = pond.explain()
        assert "window_end bounded by one.watermark, two.watermark" in told


def test_rows_of_a_join_by_time_are_not_late_for_the_watermark_they_inherit(tmp_path: Path) -> None:
    """A row of the left side waits for those of the right side that come up to ten seconds later."""
    left, right = MemorySource(SCHEMA), MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        one = pond.stream("one", left, event_time="at", delay="0s")
        two = pond.stream("two", right, event_time="at", delay="0s").select(v="v", then="at")
        within = "\"then\" BETWEEN at AND at + INTERVAL '10 seconds'".replace(" at ", ' "at" ')
        pairs = one.join(two, on="v", where=within).watermark("at", inherited(), id="pairs")
        pairs.view("pairs")
        left.push(rows(5))
        right.push(rows(5))
        pond.drain()
        left.push([{"at": 14 * SECOND, "v": 9}])
        right.push([{"at": 13 * SECOND, "v": 9}])
        pond.drain()
        right.push(rows(14))
        pond.drain()
        assert late(pond, "pairs") == 0
        assert pond.read("pairs").num_rows == 2
        assert bound(pond, "pairs") == 4
