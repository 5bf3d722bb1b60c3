"""Windows with triggers: what each mode delivers, pane by pane (laws 1, 3 and 8)."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.flow import keyed_stream
from millpond.operators.in_order import InOrder
from millpond.sources.memory import EventTimeBound, MemorySource
from millpond.testing.harness import Harness
from millpond.triggers import (
    after_count,
    after_delay,
    after_watermark,
    always,
    at_percentile,
    every,
    never,
    repeatedly,
)
from millpond.triggers import custom as own_trigger
from millpond.windows import calendar, counting, custom, everything, sessions, sliding, tumbling

START = datetime.datetime(2024, 1, 1)
SCHEMA = {"k": str, "n": int, "at": datetime.datetime}


def at(second: float) -> datetime.datetime:
    return START + datetime.timedelta(seconds=second)


def mark(second: float) -> EventTimeBound:
    return EventTimeBound((at(second) - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1))


def row(k: str, n: int, second: float) -> dict[str, Any]:
    return {"k": k, "n": n, "at": at(second)}


class Run:
    """A pond whose input arrives item by item, one epoch each."""

    def __init__(self, parallelism: int = 2) -> None:
        self.pond = millpond.open("memory://", engine="inline", checks=True, parallelism=parallelism)
        self.source = MemorySource(SCHEMA)
        self.stream = self.pond.stream("s", self.source).watermark("at", "0s")
        self.seen = 0

    def step(self, *items: Any) -> None:
        self.source.push(*items)
        self.pond.drain()

    def panes(self, view: str, *columns: str) -> list[tuple[Any, ...]]:
        """The changes of a view since the last call."""
        found = []
        for delta in self.pond.changes(view, since=self.seen):
            found += [tuple(r[c] for c in (*columns, "_w")) for r in delta.table.to_pylist()]
        self.seen = self.pond.status.epoch or 0
        return sorted(found)


EARLY_AND_LATE = after_watermark(early=after_count(2), late=after_count(1))
SHOWN = ("k", "n", "total", "pane", "pane_timing")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (
            "retracting",
            [
                [("a", 2, 3, 0, "early", 1)],
                [("a", 2, 3, 0, "early", -1), ("a", 3, 6, 1, "on_time", 1), ("b", 1, 9, 0, "on_time", 1)],
                [("a", 3, 6, 1, "on_time", -1), ("a", 4, 10, 2, "late", 1)],
            ],
        ),
        (
            "accumulating",
            [
                [("a", 2, 3, 0, "early", 1)],
                [("a", 3, 6, 1, "on_time", 1), ("b", 1, 9, 0, "on_time", 1)],
                [("a", 4, 10, 2, "late", 1)],
            ],
        ),
        (
            "discarding",
            [
                [("a", 2, 3, 0, "early", 1)],
                [("a", 1, 3, 1, "on_time", 1), ("b", 1, 9, 0, "on_time", 1)],
                [("a", 1, 4, 2, "late", 1)],
            ],
        ),
    ],
)
def test_panes_of_each_mode(mode: Any, expected: list[Any]) -> None:
    run = Run()
    windowed = run.stream.key_by("k").window(
        tumbling("10s"), trigger=EARLY_AND_LATE, allowed_lateness="7s", mode=mode, panes=True
    )
    windowed.aggregate(n="count(*)", total="sum(n)").view("v")
    windowed.late().view("late")
    run.step([row("a", 1, 1)])
    assert run.panes("v", *SHOWN) == []
    run.step([row("a", 2, 2)])
    assert run.panes("v", *SHOWN) == expected[0]
    run.step([row("a", 3, 3), row("b", 9, 3)])
    assert run.panes("v", *SHOWN) == []
    run.step(mark(10))
    assert run.panes("v", *SHOWN) == expected[1]
    run.step([row("a", 4, 4)])
    assert run.panes("v", *SHOWN) == expected[2]
    run.step(mark(17))
    run.step([row("b", 5, 4)])  # the watermark is at the end plus the lateness: the last moment
    assert [p[:2] for p in run.panes("v", *SHOWN) if p[-1] > 0] == [("b", 1 if mode == "discarding" else 2)]
    run.step(mark(18))
    run.step([row("a", 5, 4)])
    assert run.panes("v", *SHOWN) == []
    assert run.pond.read("late").column("n").to_pylist() == [5]
    if mode != "discarding":
        assert sorted(run.pond.read("v").column("n").to_pylist()) == [2, 4]


def test_an_on_time_pane_comes_without_new_rows() -> None:
    run = Run()
    for mode in ("accumulating", "discarding"):
        windowed = run.stream.key_by("k").window(
            tumbling("10s"), trigger=after_watermark(early=always()), mode=mode, panes=True
        )
        windowed.aggregate(n="count(*)", total="sum(n)").view(mode)
    run.step([row("a", 7, 1)])
    run.panes("accumulating", *SHOWN)
    seen = run.seen
    run.step(mark(10))
    assert run.panes("accumulating", *SHOWN, "pane_last") == [("a", 1, 7, 1, "on_time", True, 1)]
    run.seen = seen
    assert run.panes("discarding", *SHOWN, "pane_last") == [("a", 0, None, 1, "on_time", True, 1)]


def test_rows_after_the_last_pane_are_late() -> None:
    run = Run()
    windowed = run.stream.key_by("k").window(
        tumbling("10s"), trigger=after_watermark(), allowed_lateness="1h", panes=True
    )
    windowed.aggregate(n="count(*)").view("v")
    windowed.late().view("late")
    run.step([row("a", 1, 1)])
    run.step(mark(10))
    run.step([row("a", 2, 2)])
    assert run.pond.read("v").column("n").to_pylist() == [1]
    assert run.pond.read("late").column("n").to_pylist() == [2]


@pytest.mark.parametrize("trigger", [never(), after_count(10)])
def test_rows_that_never_fired_are_emitted_when_their_window_expires(trigger: Any) -> None:
    run = Run()
    windowed = run.stream.key_by("k").window(
        tumbling("10s"), trigger=trigger, allowed_lateness="5s", panes=True
    )
    windowed.aggregate(n="count(*)").view("v")
    run.step([row("a", 1, 1), row("a", 2, 2)])
    run.step(mark(15))
    assert run.panes("v", "n") == []
    run.step(mark(15.000001))
    assert run.panes("v", "n", "pane_last", "pane_timing") == [(2, True, "on_time", 1)]


def test_every_fires_by_the_clock_without_rows() -> None:
    def pipeline(pond: millpond.Pond, s: Any) -> None:
        windowed = pond.stream("s", s).key_by("k").window(everything(), trigger=every("5s"), time="at")
        windowed.aggregate(n="count(*)").view("v")

    with Harness(pipeline, {"s": SCHEMA}) as harness:
        harness.advance("1s")
        harness.feed("s", row("a", 1, 1))
        harness.epoch()
        assert harness.view("v") == []
        harness.advance("4s")
        harness.epoch()
        assert [r["n"] for r in harness.view("v")] == [1]
        harness.crash()
        harness.feed("s", row("a", 1, 1))
        harness.epoch()
        assert [r["n"] for r in harness.view("v")] == [1]
        harness.advance("5s")
        harness.epoch()
        assert [r["n"] for r in harness.view("v")] == [2]


@pytest.mark.parametrize("wait", [60, 1000, 5000, 300_000, 20_000_000])
def test_a_session_that_grows_while_its_deadline_comes_nearer(wait: int) -> None:
    """In milliseconds: its deadline is stored in another table when it is near, and so is that of the longer one."""

    def pipeline(pond: millpond.Pond, s: Any) -> None:
        trigger = repeatedly(after_delay(datetime.timedelta(milliseconds=wait)))
        windowed = pond.stream("s", s).key_by("k").window(sessions("10s"), trigger=trigger, time="at")
        windowed.aggregate(n="count(*)").view("v")

    with Harness(pipeline, {"s": SCHEMA}) as harness:
        for n in range(1, 8):  # the deadline stays that of the first row
            harness.feed("s", row("a", 1, n))
            harness.epoch()
            assert harness.view("v") == []
            harness.advance(datetime.timedelta(milliseconds=wait * (1 if n == 1 else 2 ** (8 - n)) // 2**7))
        harness.advance(datetime.timedelta(milliseconds=wait))
        harness.epoch()
        assert [r["n"] for r in harness.view("v")] == [7]


def test_contents_of_every_kind() -> None:
    run = Run()
    windowed = run.stream.key_by("k").window(
        sliding("10s", "5s"), trigger=repeatedly(after_count(1)), mode="retracting"
    )
    windowed.top_n(1, "n desc").view("top")
    windowed.distinct("k").view("distinct")
    windowed.reduce(lambda a, b: {"n": a.n + b.n, "at": max(a.at, b.at)}).view("reduced")
    windowed.apply(sql="SELECT median(n) AS m FROM input").view("median")
    windowed.apply(lambda key, rows: rows.select(["n"]).slice(0, 1), {"n": int}).view("applied")
    run.step([row("a", 1, 6), row("a", 5, 7), row("b", 2, 12)])
    ends = sorted(
        (r["k"], (r["window_end"] - START).seconds, r["n"]) for r in run.pond.read("top").to_pylist()
    )
    assert ends == [("a", 10, 5), ("a", 15, 5), ("b", 15, 2), ("b", 20, 2)]
    assert run.pond.read("distinct").num_rows == 4
    assert sorted(run.pond.read("reduced").column("n").to_pylist()) == [2, 2, 6, 6]
    assert sorted(run.pond.read("median").column("m").to_pylist()) == [2.0, 2.0, 3.0, 3.0]
    assert run.pond.read("applied").column_names == ["k", "window_start", "window_end", "n"]


def test_windows_without_a_trigger_follow_every_change_and_judge_lateness_by_window() -> None:
    run = Run()
    windowed = run.stream.key_by("k").window(tumbling("10s"), allowed_lateness="5s")
    windowed.aggregate(n="count(*)").view("v")
    windowed.late().view("late")
    run.step([row("a", 1, 1), row("a", 1, 12)])
    run.step([row("a", 1, 2)])  # behind the watermark, but its window is open
    run.step([row("a", 1, 15.000001)])
    run.step([row("a", 1, 3)])
    got = {(r["window_start"] - START).seconds: r["n"] for r in run.pond.read("v").to_pylist()}
    assert got == {0: 2, 10: 2}
    assert run.pond.read("late").num_rows == 1


def test_times_at_the_ends_of_the_calendar_are_error_rows() -> None:
    run = Run()
    run.stream.key_by("k").window(calendar("year")).aggregate(n="count(*)").view("v")
    run.stream.key_by("k").window(tumbling("10s")).aggregate(n="count(*)").view("w")
    run.step([{"k": "a", "n": 1, "at": None}, {"k": "a", "n": 1, "at": datetime.datetime(1, 1, 1)}])
    run.step([{"k": "a", "n": 2, "at": datetime.datetime.max}])
    assert sorted(run.pond.read("v").column("n").to_pylist()) == [1]
    assert run.pond.read("w").num_rows == 1
    assert len(run.pond.errors()) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: tumbling("0s"), "must be positive"),
        (lambda s: tumbling(-1), "must be positive"),
        (lambda s: tumbling("-1s"), "cannot be negative"),
        (lambda s: sliding("1m", "-5s"), "cannot be negative"),
        (lambda s: sessions("  "), "gap of sessions is empty"),
        (
            lambda s: s.key_by("k").window(counting(3), on_close=True, allowed_lateness="1h"),
            "counted are never late",
        ),
        (
            lambda s: s.key_by("k").window(sessions("1m"), time="at").process(len, {"n": int}),
            "process needs windows that take no row back",
        ),
        (lambda s: calendar("decade"), "no calendar unit"),  # type: ignore[arg-type]
        (lambda s: calendar("day", "Europe/Berln"), "no time zone"),
        (lambda s: custom(None), "is no function"),  # type: ignore[arg-type]
        (lambda s: tumbling("1d", offset="--8h"), "not a duration"),
        (lambda s: after_count(0), "number of rows"),
        (lambda s: always().or_finally(3), "is no trigger"),  # type: ignore[arg-type]
        (lambda s: s.key_by("k").window(everything(), trigger=never(), time="at"), "never fires"),
        (
            lambda s: s.key_by("k").window(tumbling("1s"), trigger=after_watermark(), time="at"),
            "needs a watermark",
        ),
        (
            lambda s: s.key_by("k").window(tumbling("1s"), allowed_lateness="1s", time="at"),
            "needs a watermark",
        ),
        (lambda s: s.key_by("k").window("10s", time="at"), "are no windows"),
        (lambda s: s.key_by("k").window(tumbling("1s"), mode="discarding", time="at"), "needs a trigger"),
        (lambda s: s.key_by("k").window(tumbling("1s"), panes=True, time="at"), "need a trigger"),
        (lambda s: s.key_by("k").window(tumbling("1s")), "no time column"),
    ],
)
def test_wrong_calls(call: Any, message: str) -> None:
    pond = millpond.open("memory://", engine="inline")
    with pytest.raises(InvalidError, match=message):
        call(pond.stream("s", MemorySource(SCHEMA)))


def test_a_query_per_key_sees_one_key() -> None:
    pond = millpond.open("memory://", engine="inline")
    orders = pond.table("orders", {"who": str, "n": int})
    orders.key_by("who").apply(sql="SELECT median(n) AS median FROM input").view("medians")
    pond.insert("orders", [{"who": "ann", "n": 5}, {"who": "bob", "n": 2}, {"who": "bob", "n": 4}])
    pond.drain()
    assert sorted(pond.read("medians").column("median").to_pylist()) == [3.0, 5.0]


@pytest.mark.parametrize("mode", ["retracting", "accumulating", "discarding"])
def test_sessions_that_merge_take_over_what_their_parts_emitted(mode: Any) -> None:
    run = Run()
    trigger = repeatedly(after_count(2))
    windowed = run.stream.key_by("k").window(
        sessions("10s"), trigger=trigger, mode=mode, panes=True, allowed_lateness="1h"
    )
    windowed.aggregate(n="count(*)").view("v")
    shown = ("window_start", "n", "pane")
    run.step([row("a", 1, 20), row("a", 1, 21)])
    assert run.panes("v", *shown) == [(at(20), 2, 0, 1)]
    run.step([row("a", 1, 33), row("a", 1, 34)])
    assert run.panes("v", *shown) == [(at(33), 2, 0, 1)]
    run.step([row("a", 1, 27)])  # joins the two, whose counts are at zero again
    assert run.panes("v", *shown) == []
    run.step([row("a", 1, 28)])
    expected = {
        "retracting": [(at(20), 2, 0, -1), (at(20), 6, 0, 1), (at(33), 2, 0, -1)],
        "accumulating": [(at(20), 6, 0, 1)],
        "discarding": [(at(20), 2, 0, 1)],
    }
    assert run.panes("v", *shown) == expected[mode]
    if mode != "discarding":
        assert run.pond.read("v").column("n").to_pylist() == [6]


def test_sessions_split_when_a_row_between_them_is_deleted() -> None:
    pond = millpond.open("memory://", engine="inline", checks=True, parallelism=2)
    visits = pond.table("visits", SCHEMA, key="n")
    visits.key_by("k").window(sessions("10s"), time="at").aggregate(n="count(*)").view("v")
    pond.insert("visits", [row("a", 1, 0), row("a", 2, 9), row("a", 3, 18), row("a", 4, 28)])
    pond.drain()
    counts = sorted((r["window_start"], r["n"]) for r in pond.read("v").to_pylist())
    assert counts == [(at(0), 3), (at(28), 1)]  # sessions that only touch stay apart
    pond.delete("visits", [{"n": 2}])
    pond.drain()
    counts = sorted((r["window_start"], r["n"]) for r in pond.read("v").to_pylist())
    assert counts == [(at(0), 1), (at(18), 1), (at(28), 1)]


def test_a_session_that_was_emitted_as_closed_never_changes() -> None:
    run = Run()
    run.stream.key_by("k").window(sessions("10s"), on_close=True).aggregate(n="count(*)").view("v")
    run.step([row("a", 1, 1)])
    run.step([row("b", 1, 11.5)])  # the watermark passes 11, within the bucket of the session
    run.step([row("a", 1, 10.9)])
    run.step(mark(60))
    got = sorted((r["k"], r["window_start"], r["n"]) for r in run.pond.read("v").to_pylist())
    assert got == [("a", at(1), 1), ("a", at(10.9), 1), ("b", at(11.5), 1)]


def test_a_session_that_grows_and_closes_in_one_epoch_is_emitted_once() -> None:
    """Its first row was held in the window that it had alone."""
    run = Run()
    windowed = run.stream.key_by("k").window(sessions("10s"), on_close=True)
    windowed.aggregate(n="count(*)", most="max(n)").view("v")
    windowed.top_n(1, "n desc").view("best")
    windowed.apply(sql="SELECT count(*) AS c FROM input").view("applied")
    windowed.process(lambda row: {"n": row.n}, {"n": int}).view("processed")
    run.step([row("a", 9, 1)])
    run.step([row("a", 5, 6)], mark(100))
    (found,) = run.pond.read("v").to_pylist()
    assert (found["window_start"], found["window_end"], found["n"], found["most"]) == (at(1), at(16), 2, 9)
    assert [r["n"] for r in run.pond.read("best").to_pylist()] == [9]
    assert [r["c"] for r in run.pond.read("applied").to_pylist()] == [2]
    assert sorted(r["n"] for r in run.pond.read("processed").to_pylist()) == [5, 9]
    assert not run.pond.errors().num_rows


def test_a_percentile_of_completeness_fires_before_the_watermark() -> None:
    run = Run()
    slow = run.pond.stream("t", source := MemorySource(SCHEMA)).watermark("at", "1h")
    windowed = slow.key_by("k").window(tumbling("10s"), trigger=at_percentile(0.9), panes=True)
    windowed.aggregate(n="count(*)").view("v")
    for second in range(0, 60, 5):
        source.push([row("a", 1, second)])
        run.pond.drain()
    panes = sorted((r["window_start"], r["n"], r["pane_timing"]) for r in run.pond.read("v").to_pylist())
    assert panes[0] == (at(0), 2, "early")
    assert len(panes) == 5


def test_sessions_with_a_gap_of_the_row() -> None:
    run = Run()
    windowed = run.stream.key_by("k").window(sessions("CASE WHEN n = 1 THEN 3600 ELSE 2 END"))
    windowed.aggregate(rows="count(*)").view("v")
    interval = run.stream.key_by("k").window(sessions("to_seconds(n)"))
    interval.aggregate(rows="count(*)").view("w")
    run.step([row("a", 1, 0), row("a", 2, 3599), row("a", 2, 3602), row("a", 0, 3603)])
    got = sorted((r["window_start"], r["rows"]) for r in run.pond.read("v").to_pylist())
    assert got == [(at(0), 2), (at(3602), 2)]
    assert sorted(run.pond.read("w").column("rows").to_pylist()) == [1, 1, 1]
    assert [e["reason"] for e in run.pond.errors("w").to_pylist()] == [
        "the gap of a session must be positive, got 0"
    ]


def shift_of(row: Any) -> list[tuple[datetime.datetime, datetime.datetime]]:
    if row.n == 0:
        raise ValueError("no shift 0")
    return [(START, at(10 * row.n))] if row.n < 9 else [(at(10), at(5))]


@pytest.mark.parametrize("trigger", [None, always()])
def test_custom_windows_and_their_errors(trigger: Any) -> None:
    run = Run()
    windowed = run.stream.key_by("k").window(custom(shift_of), trigger=trigger)
    windowed.aggregate(rows="count(*)").view("v")
    run.step([row("a", 1, 0), row("a", 2, 1), row("a", 2, 2), row("a", 0, 3), row("a", 9, 3)])
    got = sorted((r["window_end"], r["rows"]) for r in run.pond.read("v").to_pylist())
    assert got == [(at(10), 1), (at(20), 2)]
    reasons = sorted(e["reason"] for e in run.pond.errors("v").to_pylist())
    assert len(reasons) == 2 and "ends after its start" in reasons[1 - ("no shift" in reasons[1])]


def all_in_one(windows: list[Any]) -> list[Any]:
    return [(min(s for s, _ in windows), max(e for _, e in windows))]


@pytest.mark.parametrize("trigger", [None, always()])
def test_custom_windows_that_merge(trigger: Any) -> None:
    run = Run()
    windows = custom(lambda r: [(r.at, r.at + datetime.timedelta(seconds=1))], merge=all_in_one)
    windowed = run.stream.key_by("k").window(windows, trigger=trigger, allowed_lateness="1d")
    windowed.aggregate(rows="count(*)").view("v")
    run.step([row("a", 1, 0), row("b", 1, 7)])
    run.step([row("a", 1, 30)])
    got = sorted((r["k"], r["window_start"], r["rows"]) for r in run.pond.read("v").to_pylist())
    assert got == [("a", at(0), 2), ("b", at(7), 1)]


def test_windows_of_a_number_of_rows() -> None:
    run = Run()
    keyed = run.stream.key_by("k")
    keyed.window(counting(2)).aggregate(rows="count(*)", total="sum(n)").view("each")
    keyed.window(counting(2), on_close=True).aggregate(rows="count(*)", total="sum(n)").view("full")
    keyed.window(counting(3, step=2), on_close=True).aggregate(total="sum(n)").view("overlapping")
    run.step([row("a", 1, 0), row("a", 2, 0), row("a", 3, 0), row("b", 9, 0)])
    run.step([row("a", 4, 0), row("a", 5, 0)])

    def rows(view: str, *names: str) -> list[tuple[Any, ...]]:
        return sorted(
            tuple(r[n] for n in ("k", "window_start", *names)) for r in run.pond.read(view).to_pylist()
        )

    assert rows("each", "rows", "total") == [("a", 0, 2, 3), ("a", 2, 2, 7), ("a", 4, 1, 5), ("b", 0, 1, 9)]
    assert rows("full", "rows", "total") == [("a", 0, 2, 3), ("a", 2, 2, 7)]
    assert rows("overlapping", "total") == [("a", 0, 6), ("a", 2, 12)]


def test_a_window_of_rows_times_out() -> None:
    def pipeline(pond: millpond.Pond, s: Any) -> None:
        windowed = pond.stream("s", s).key_by("k").window(counting(3, timeout="10s"), on_close=True)
        windowed.aggregate(rows="count(*)", total="sum(n)").view("v")

    def seen(harness: Harness) -> list[tuple[Any, ...]]:
        return sorted((r["window_start"], r["window_end"], r["total"]) for r in harness.view("v"))

    with Harness(pipeline, {"s": SCHEMA}) as harness:
        harness.feed("s", row("a", 1, 0), row("a", 2, 0))
        harness.epoch()
        assert seen(harness) == []
        harness.advance("10s")
        harness.epoch()
        assert seen(harness) == [(0, 2, 3)]
        harness.feed("s", row("a", 3, 0), row("a", 4, 0), row("a", 5, 0), row("a", 6, 0))
        harness.epoch()
        assert seen(harness) == [(0, 2, 3), (2, 5, 12)]
        harness.crash()
        harness.advance("10s")
        harness.feed("s", row("a", 7, 0))
        harness.epoch()
        assert seen(harness)[2:] == [(5, 6, 6)]
        harness.advance("10s")
        harness.epoch()
        assert seen(harness)[3:] == [(6, 7, 7)]


def totals_of_counted(harness: Harness) -> list[tuple[Any, ...]]:
    return sorted((r["window_start"], r["window_end"], r["total"]) for r in harness.view("v"))


@pytest.mark.parametrize("more", [1, 2, 3, 4])
def test_rows_that_come_when_a_window_of_rows_is_due_start_the_next_one(more: int) -> None:
    """Also where they would have filled it."""

    def pipeline(pond: millpond.Pond, s: Any) -> None:
        windowed = pond.stream("s", s).key_by("k").window(counting(3, timeout="10s"), on_close=True)
        windowed.aggregate(total="sum(n)").view("v")

    with Harness(pipeline, {"s": SCHEMA}) as harness:
        harness.feed("s", row("a", 1, 0))
        harness.epoch()
        harness.advance("10s")
        harness.feed("s", *(row("a", 10, 0) for _ in range(more)))
        harness.epoch()
        full = [(1, 4, 30)] if more >= 3 else []
        assert totals_of_counted(harness) == [(0, 1, 1), *full]
        harness.advance("10s")
        harness.epoch()
        rest = {1: [(1, 2, 10)], 2: [(1, 3, 20)], 3: [], 4: [(4, 5, 10)]}
        assert totals_of_counted(harness) == [(0, 1, 1), *full, *rest[more]]


def test_the_timeout_of_a_full_window_of_rows_does_not_end_the_next_one() -> None:
    def pipeline(pond: millpond.Pond, s: Any) -> None:
        windowed = pond.stream("s", s).key_by("k").window(counting(2, timeout="10s"), on_close=True)
        windowed.aggregate(total="sum(n)").view("v")

    with Harness(pipeline, {"s": SCHEMA}) as harness:
        harness.feed("s", row("a", 1, 0))
        harness.epoch()
        harness.advance("6s")
        harness.feed("s", row("a", 2, 0), row("a", 4, 0))
        harness.epoch()
        harness.advance("4s")
        harness.epoch()
        assert totals_of_counted(harness) == [(0, 2, 3)]
        harness.advance("6s")
        harness.epoch()
        assert totals_of_counted(harness) == [(0, 2, 3), (2, 3, 4)]


@pytest.mark.parametrize(("n", "step", "kept"), [(2, 2, 0), (2, 3, 0), (3, 2, 1), (3, 1, 2)])
def test_rows_of_full_windows_are_not_kept(n: int, step: int, kept: int) -> None:
    run = Run()
    windowed = run.stream.key_by("k").window(counting(n, step), on_close=True)
    windowed.aggregate(total="sum(n)").view("v")
    run.step([row("a", 1, 0)] * (n + 2 * step))
    assert run.pond.read("v").num_rows == 3
    assert [s.rows for s in run.pond.states() if s.state == "rows" and s.step.endswith(".window")] == [kept]


def test_a_trigger_of_the_users_own() -> None:
    run = Run()
    trigger = own_trigger(lambda n, event: n + event.rows, lambda n, event: n >= 13, start=10)
    windowed = run.stream.key_by("k").window(tumbling("10s"), trigger=trigger, panes=True)
    windowed.aggregate(n="count(*)").view("v")
    ending = own_trigger(lambda n, e: n, lambda n, e: e.watermark >= e.window_end, once=True, at_end=True)
    run.stream.key_by("k").window(tumbling("10s"), trigger=ending).aggregate(n="count(*)").view("w")
    run.step([row("a", 1, 1), row("a", 1, 1), row("b", 1, 1)])
    assert run.panes("v", "k", "n") == []
    run.step([row("a", 1, 2)])
    run.step([row("a", 1, 2), row("a", 1, 2)])
    assert run.panes("v", "k", "n", "pane") == [("a", 3, 0, 1)]
    run.step([row("a", 1, 2)])
    assert [p[1:3] for p in run.panes("v", "k", "n", "pane") if p[-1] > 0] == [(6, 1)]
    assert run.pond.read("w").num_rows == 0
    run.step(mark(10))
    assert sorted(run.pond.read("w").column("n").to_pylist()) == [1, 6]


def test_a_trigger_that_fails_is_told() -> None:
    run = Run()
    trigger = own_trigger(lambda n, event: n + event.rows, lambda n, event: 1 // 0 > 0)
    run.stream.key_by("k").window(tumbling("10s"), trigger=trigger).aggregate(n="count(*)").view("v")
    run.source.push([row("a", 1, 1)])
    with pytest.raises(InvalidError, match="a custom trigger failed"):
        run.pond.drain()


class Reminder(millpond.Process):
    def on_row(self, row: Any, ctx: Any) -> None:
        ctx.set_timer("end", after=0)

    def on_timer(self, timer: Any, ctx: Any) -> dict[str, Any]:
        return {"k": ctx.key.k, "end": ctx.key.window_end}


def test_process_in_windows_has_timers() -> None:
    run = Run()
    windowed = run.stream.key_by("k").window(tumbling("10s"))
    windowed.process(Reminder, {"k": str, "end": datetime.datetime}).view("ended")
    run.step([row("a", 1, 1), row("a", 1, 12)])
    run.step(mark(15))
    assert [(r["k"], r["end"]) for r in run.pond.read("ended").to_pylist()] == [("a", at(10))]


def test_rows_leave_in_order() -> None:
    run = Run()
    slow = run.pond.stream("t", source := MemorySource(SCHEMA)).watermark("at", "5s")
    slow.key_by("k").in_order().stream.view("by_watermark")
    run.pond.stream("u", other := MemorySource(SCHEMA)).key_by("k").in_order(
        slack=2, time="at", id="sorted"
    ).stream.view("by_slack")
    for second in (3, 1, 2, 9, 8, 0.5, 12):
        for one in (source, other):
            one.push([row("a", int(second * 10), second)])
        run.pond.drain()
    assert sorted(run.pond.read("by_watermark").column("n").to_pylist()) == [10, 20, 30]
    released = []
    for delta in run.pond.changes("by_slack", since=0):
        released += delta.table.column("n").to_pylist()
    assert released == [10, 20, 30, 80]
    assert run.pond.late("sorted").column("n").to_pylist() == [5]


def test_readers_of_changes_receive_rows_in_order() -> None:
    """Also where several rows leave in one epoch, from several tasks and under another name."""
    run = Run(parallelism=3)
    ordered = run.stream.key_by("k").in_order().stream
    ordered.filter("n > 0").select("k", happened="at", twice="2 * n").view("renamed")
    run.step([row("abcdefg"[n % 7], n, 97 * n % 50) for n in range(50)], mark(30))
    run.step(mark(60))
    given = [r["happened"] for delta in run.pond.changes("renamed", since=0) for r in delta.table.to_pylist()]
    assert given == [at(second) for second in range(1, 50)]
    (whole,) = run.pond.changes("renamed")
    assert whole.table.column("happened").to_pylist() == given


def test_joins_of_windows() -> None:
    run = Run()
    other = MemorySource({"k": str, "m": int, "at": datetime.datetime})
    right = run.pond.stream("r", other).watermark("at", "0s")
    for name, closes in (("now", False), ("closed", True)):
        left = run.stream.key_by("k").window(tumbling("10s"), on_close=closes)
        both = right.key_by("k").window(tumbling("10s"), on_close=closes)
        left.join(both, "left" if not closes else "inner").view(name)
    other.push([{"k": "a", "m": 7, "at": at(9)}])
    run.step([row("a", 1, 1), row("a", 2, 11), row("b", 3, 1)])
    got = sorted((r["k"], r["n"], r["m"] or 0) for r in run.pond.read("now").to_pylist())
    assert got == [("a", 1, 7), ("a", 2, 0), ("b", 3, 0)]
    assert run.pond.read("closed").num_rows == 0
    other.push(mark(60))
    run.step(mark(60))
    assert [(r["n"], r["m"]) for r in run.pond.read("closed").to_pylist()] == [(1, 7)]


# -- several panes of a window in one epoch --------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("mode", ["accumulating", "retracting", "discarding"])
def test_two_panes_of_a_window_in_one_epoch(mode: Any, parallelism: int) -> None:
    """The feed has both, the view the second; windows with one pane are not mixed up with them."""
    run = Run(parallelism)
    options: dict[str, Any] = {"trigger": EARLY_AND_LATE, "allowed_lateness": "100s", "mode": mode}
    windowed = run.stream.key_by("k").window(tumbling("10s"), panes=True, **options)
    windowed.aggregate(n="count(*)", total="sum(n)").view("v")
    plain = run.stream.key_by("k").window(tumbling("10s"), **options)
    plain.aggregate(n="count(*)", total="sum(n)").view("plain")
    run.step([row("b", 1, 1), row("b", 2, 2)])  # a pane before that epoch
    run.panes("v", *SHOWN)
    many = [row(k, n, 3) for k in "acbd" for n in range(1, 3 if k in "ab" else 2)]
    run.step([*many, row("e", 5, 13), row("e", 6, 14)], mark(10))
    found = run.panes("v", *SHOWN)
    contents = {"a": (2, 3), "b": (4, 6), "c": (1, 1), "d": (1, 1), "e": (2, 11)}
    second = {"a": (0, None), "b": (0, None)}  # of discarding: nothing new
    ends = [("a", 1), ("b", 2), ("c", 0), ("d", 0)]
    on_time = [(k, *contents[k], pane, "on_time", 1) for k, pane in ends]
    early = [("a", *contents["a"], 0, "early", 1), ("b", *contents["b"], 1, "early", 1)]
    last = [("e", *contents["e"], 0, "early", 1)]
    if mode == "accumulating":
        assert found == sorted([*on_time, *early, *last])
    elif mode == "retracting":
        assert found == sorted([("b", 2, 3, 0, "early", -1), *on_time, *last])
    else:
        early[1] = ("b", 2, 3, 1, "early", 1)
        told = [(k, *second.get(k, contents[k]), pane, "on_time", 1) for k, pane in ends]
        by_text = lambda panes: sorted(panes, key=repr)  # noqa: E731
        assert by_text(found) == by_text([*told, *early, *last])
    if mode != "discarding":
        shown = sorted((r["k"], r["n"], r["total"], r["pane"]) for r in run.pond.read("v").to_pylist())
        assert shown == sorted([(k, *contents[k], pane) for k, pane in ends] + [("e", 2, 11, 0)])
        same = sorted((r["k"], r["n"], r["total"]) for r in run.pond.read("plain").to_pylist())
        assert same == sorted((k, *of) for k, of in contents.items())


def test_two_panes_of_a_window_without_their_columns_are_delivered_twice() -> None:
    run = Run()
    windowed = run.stream.key_by("k").window(tumbling("10s"), trigger=EARLY_AND_LATE, mode="accumulating")
    windowed.aggregate(n="count(*)").view("v")
    run.step([row("a", 1, 1), row("a", 1, 2), row("b", 1, 3)], mark(10))
    assert run.panes("v", "k", "n") in ([("a", 2, 1), ("a", 2, 1), ("b", 1, 1)], [("a", 2, 2), ("b", 1, 1)])
    assert run.pond.read("v").num_rows == 2


# -- in_order ----------------------------------------------------------------------------------------


def test_a_row_at_the_watermark_is_held_until_it_has_passed() -> None:
    run = Run()
    run.stream.key_by("k").in_order(slack=10).stream.view("v")
    run.step([row("a", 3, 3), row("a", 5, 5)])  # the watermark is at 5
    assert run.pond.read("v").column("n").to_pylist() == [3]
    run.step([row("a", 4, 5)])  # the same time, and before the other by its columns
    assert run.pond.read("v").column("n").to_pylist() == [3]
    run.step(mark(5.000001))
    assert sorted(run.pond.read("v").column("n").to_pylist()) == [3, 4, 5]
    assert run.pond.late("s.watermark.in_order").num_rows == 0


def test_what_left_of_a_key_is_forgotten_behind_the_watermark() -> None:
    """Keys that come once leave nothing; until the watermark has passed, a row before the last is late."""
    run = Run()
    slow = run.pond.stream("t", source := MemorySource(SCHEMA)).watermark("at", "20s")
    slow.key_by("k").in_order(slack=0, id="sorted").stream.view("v")
    kept = []
    for n in range(12):
        source.push([row(f"k{n}", n, 10 * n), row(f"k{n}", n, 10 * n - 1), row(f"k{n - 1}", -n, 10 * n - 11)])
        run.pond.drain()
        run.pond.compact()
        kept.append(sum(s.rows for s in run.pond.states() if (s.step, s.state) == ("sorted", "left")))
    assert max(kept[6:]) <= max(kept[:6]) <= 4
    assert run.pond.late("sorted").num_rows == 11, "a row before one of the epoch before"
    assert run.pond.read("v").num_rows == 25


def test_a_pond_that_keeps_what_left_of_a_key_goes_on(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As older versions stored it."""
    source = MemorySource(SCHEMA)

    def opened() -> millpond.Pond:
        pond = millpond.open(tmp_path / "pond", engine="inline")
        stream = pond.stream("t", source, event_time="at", delay="20s")
        stream.key_by("k").in_order(slack=0, id="sorted").stream.view("v")
        return pond

    with monkeypatch.context() as patch:
        patch.setattr(keyed_stream, "InOrder", lambda *args, forgets: InOrder(*args))
        with opened() as pond:
            source.push([row("a", 1, 5)])
            pond.drain()
    with opened() as pond:
        source.push([row("a", 2, 4), row("a", 3, 6)])
        pond.drain()
        assert pond.late("sorted").column("n").to_pylist() == [2]
        assert sorted(pond.read("v").column("n").to_pylist()) == [1, 3]


def test_a_row_of_the_same_time_as_the_last_that_left_is_not_late() -> None:
    run = Run()
    run.pond.stream("t", source := MemorySource(SCHEMA)).key_by("k").in_order(
        slack=0, time="at", id="sorted"
    ).stream.view("v")
    for n, second in ((1, 3), (2, 3), (3, 2)):
        source.push([row("a", n, second)])
        run.pond.drain()
    assert sorted(run.pond.read("v").column("n").to_pylist()) == [1, 2]
    assert run.pond.late("sorted").column("n").to_pylist() == [3]


@pytest.mark.parametrize("mode", ["discarding", "accumulating"])
def test_a_session_that_merged_with_a_finished_one_makes_no_pane_when_it_expires(mode: Any) -> None:
    run = Run(1)
    windowed = run.stream.key_by("k").window(
        sessions("5s"), trigger=after_count(2), allowed_lateness="30s", mode=mode, panes=True
    )
    windowed.aggregate(n="count(*)").view("v")
    windowed.late().view("late")
    run.step([row("a", 1, 1), row("a", 2, 2)])
    run.step([row("a", 3, 8)])  # a session of its own that waits
    assert [p[:2] for p in run.panes("v", "k", "n")] == [("a", 2)]
    run.step([row("a", 4, 6), row("b", 5, 8)])  # it merges the two
    assert sorted(run.pond.read("late").column("n").to_pylist()) == [3, 4]
    run.panes("v", "k", "n")
    run.step(mark(60))
    assert [p[:2] for p in run.panes("v", "k", "n")] == [("b", 1)]


def test_what_a_session_emitted_stays_when_it_merges_with_a_finished_one() -> None:
    """Its rows are not taken back when the window in which they were emitted expires."""
    run = Run()
    windowed = run.stream.key_by("k").window(
        sessions("5s"), trigger=after_watermark(early=after_count(1)), allowed_lateness="20s"
    )
    windowed.aggregate(n="count(*)", total="sum(n)").view("v")
    windowed.late().view("late")
    run.step([row("a", 1, 0)])
    run.step(mark(6))  # the first session has finished
    run.step([row("a", 2, 8)])
    run.step([row("a", 4, 4)])  # between the two
    run.step(mark(30), [row("b", 8, 30)])
    run.step(mark(80))
    shown = sorted((r["k"], r["window_start"], r["total"]) for r in run.pond.read("v").to_pylist())
    assert shown == [("a", at(0), 1), ("a", at(8), 2), ("b", at(30), 8)]
    assert run.pond.read("late").column("n").to_pylist() == [4]
    assert not run.pond.errors().num_rows


@pytest.mark.parametrize("lateness", ["0s", "3s"])
def test_what_a_part_of_a_session_emitted_is_taken_back_when_the_part_expires(lateness: str) -> None:
    """No row of the session comes; later steps drop the state of the window in which it was emitted."""
    run = Run()
    windowed = run.stream.key_by("k").window(
        sessions("5s"), trigger=repeatedly(after_count(2)), allowed_lateness=lateness
    )
    windowed.aggregate(n="count(*)").view("v")
    more = int(lateness[:-1])
    run.step([row("a", 1, 1), row("a", 1, 2)])
    run.step([row("a", 1, 6)])  # the session is longer now, and has not fired
    shown = lambda: [(r["window_end"], r["n"]) for r in run.pond.read("v").to_pylist()]  # noqa: E731
    run.step(mark(7 + more))
    assert shown() == [(at(7), 2)]
    run.step(mark(7.000001 + more))
    assert shown() == []
    run.step(mark(60))
    assert shown() == [(at(11), 3)]
    assert not run.pond.errors().num_rows


@pytest.mark.parametrize("seconds", [(5, 2, 3, 4), (1, 4, 8, 12)])
def test_a_session_that_grows_counts_its_rows_once(seconds: tuple[int, ...]) -> None:
    run = Run()
    by_four = run.stream.key_by("k").window(sessions("5s"), trigger=repeatedly(after_count(4)))
    by_four.aggregate(n="count(*)").view("v")
    for second in seconds[:3]:
        run.step([row("a", 1, second)])
        assert run.pond.read("v").num_rows == 0, second
    run.step([row("a", 1, seconds[3])])
    found = [(r["window_start"], r["window_end"], r["n"]) for r in run.pond.read("v").to_pylist()]
    assert found == [(at(min(seconds)), at(max(seconds) + 5), 4)]
