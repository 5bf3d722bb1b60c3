"""Windows at the very moment of their end, over unusual input and in ponds that change (laws 1, 3 and 8)."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.sources.memory import MemorySource
from millpond.triggers import after_all, after_any, after_count, always, every, never, repeatedly
from millpond.windows import Windows, calendar, sessions, sliding, tumbling
from tests.unit.flow.test_windowed import SCHEMA, Run, at, mark, row

DAY = 86_400


@pytest.mark.parametrize(
    ("windows", "end"),
    [
        (tumbling("10s"), 10),
        (tumbling("10s", offset="2s"), 12),
        (sliding("10s", "10s", offset="7s"), 7),
        (sessions("10s"), 12),
        (calendar("day"), DAY),
    ],
)
def test_a_window_closes_when_the_watermark_reaches_its_end(windows: Windows, end: float) -> None:
    run = Run()
    by_key = run.stream.key_by("k")
    by_key.window(windows, on_close=True).aggregate(n="count(*)").view("closed")
    by_key.window(windows, trigger=never(), allowed_lateness="5s").aggregate(n="count(*)").view("expired")
    run.step([row("a", 1, 2)])
    run.step(mark(end - 0.000001))
    assert run.pond.read("closed").num_rows == 0
    run.step(mark(end))
    assert run.pond.read("closed").column("n").to_pylist() == [1]
    run.step(mark(end + 5))
    assert run.pond.read("expired").num_rows == 0
    run.step(mark(end + 5.000001))
    assert run.pond.read("expired").column("n").to_pylist() == [1]
    run.step(mark(end + 3 * DAY))
    assert run.pond.read("expired").column("n").to_pylist() == [1]


@pytest.mark.parametrize(
    ("windows", "second"),
    [(tumbling("10s"), 9.999999), (sliding("10s", "10s"), 9.999999), (sessions("4s"), 6)],
)
def test_a_row_is_late_when_its_window_has_just_ended(windows: Windows, second: float) -> None:
    run = Run()
    by_key = run.stream.key_by("k")
    for name, options in (
        ("closed", {"on_close": True}),
        ("followed", {}),
        ("kept", {"allowed_lateness": "1s"}),
    ):
        windowed = by_key.window(windows, **options)
        windowed.aggregate(n="count(*)").view(name)
        windowed.late().view(f"{name}_late")
    late = lambda: [run.pond.read(f"{name}_late").num_rows for name in ("closed", "followed", "kept")]  # noqa: E731
    for reached, counts in ((10, [1, 0, 0]), (10.000001, [2, 1, 0]), (11, [3, 2, 0]), (11.000001, [4, 3, 1])):
        run.step(mark(reached))
        run.step([row("a", 1, second)])
        assert late() == counts, reached


def test_windows_with_gaps_are_allowed_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    run = Run()
    windowed = run.stream.key_by("k").window(sliding("2s", "1m"))
    (told,) = caplog.messages
    assert "slide of the windows of step 's.watermark' is above their size" in told
    windowed.aggregate(n="count(*)").view("v")
    run.stream.hop("2s", "1m").view("w")
    assert len(caplog.messages) == 2
    run.stream.key_by("k").window(sliding("2s", "2s")).aggregate(n="count(*)").view("x")
    run.stream.hop("2s", "1s").view("y")
    assert len(caplog.messages) == 2
    assert run.pond.explain().count("note: rows between two windows are in none") == 2
    run.step([row("a", 1, 1), row("a", 1, 2)])
    assert run.pond.read("v").column("n").to_pylist() == [1]
    assert {n for step, n in run.pond.head().counts.items() if step.startswith("no_window/")} == {1}


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_rows_that_never_fired_are_emitted_where_several_watermarks_bound_them(names: Any) -> None:
    pond = millpond.open("memory://", engine="inline", checks=True, parallelism=2)
    left, right = MemorySource(SCHEMA), MemorySource(SCHEMA)
    orders = pond.stream(names[0], left, event_time="at", delay="0s")
    paid = pond.stream(names[1], right, event_time="at", delay="0s")
    both = orders.join(paid, "k", where='"at_right" BETWEEN "at" AND "at" + INTERVAL 100 SECOND')
    windowed = both.select("k", "n", "at").key_by("k").window(tumbling("10s"), trigger=never(), time="at")
    windowed.aggregate(n="count(*)").view("v")
    for second in range(0, 200, 10):
        left.push([row("a", 1, second)])
        right.push([row("a", 1, second)])
        pond.drain()
    assert pond.read("v").column("n").to_pylist() == [11] * 8


@pytest.mark.parametrize("windows", [tumbling("10s"), sessions("10s")])
def test_the_key_may_be_a_column_with_an_underscore(windows: Windows) -> None:
    run = Run()
    source = MemorySource({"_who": str, "at": datetime.datetime})
    stream = run.pond.stream("visits", source).watermark("at", "0s")
    windowed = stream.key_by("_who").window(windows, trigger=repeatedly(after_count(1)))
    windowed.aggregate(n="count(*)").view("v")
    for second in (1, 2):
        source.push([{"_who": "ann", "at": row("", 0, second)["at"]}])
        run.pond.drain()
    assert run.pond.read("v").column("n").to_pylist() == [2]


@pytest.mark.parametrize("mode", ["retracting", "accumulating"])
def test_triggers_over_a_table_follow_deletions(mode: Any) -> None:
    pond = millpond.open("memory://", engine="inline", checks=True, parallelism=2)
    windowed = (
        pond.table("t", SCHEMA, key="n")
        .key_by("k")
        .window(tumbling("10s"), time="at", trigger=always(), mode=mode)
    )
    windowed.aggregate(c="count(*)", total="sum(n)").view("v")
    windowed.late().view("late")
    pond.insert("t", [row("a", 1, 1), row("a", 2, 1), row("b", 3, 1)])
    pond.drain()
    pond.delete("t", [{"n": 1}, {"n": 3}])
    pond.drain()
    assert [(r["k"], r["c"], r["total"]) for r in pond.read("v").to_pylist()] == [("a", 1, 2)]
    assert pond.read("late").num_rows == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trigger": always(), "mode": "discarding"}, "needs append-only input"),
        ({"trigger": after_count(1)}, "for the last time"),
        ({"trigger": after_any(always(), after_count(1))}, "for the last time"),
        ({"trigger": after_all(after_count(2), after_count(1))}, "for the last time"),
    ],
)
def test_windows_that_cannot_follow_deletions_are_refused(options: Any, message: str) -> None:
    pond = millpond.open("memory://", engine="inline")
    table = pond.table("t", SCHEMA, key="n")
    with pytest.raises(InvalidError, match=message):
        table.key_by("k").window(tumbling("10s"), time="at", **options).aggregate(n="count(*)")
    table.key_by("k").window(tumbling("10s"), time="at", trigger=after_all(every("5s"), after_count(1)))


@pytest.mark.parametrize("trigger", [always(), every("5s"), repeatedly(after_count(2))], ids=str)
def test_sessions_with_a_trigger_over_a_table_are_refused_with_a_way_out(trigger: Any) -> None:
    pond = millpond.open("memory://", engine="inline")
    table = pond.table("t", SCHEMA, key="n")
    with pytest.raises(InvalidError, match="sessions with a trigger need append-only input") as refused:
        table.key_by("k").window(sessions("10s"), time="at", trigger=trigger).aggregate(c="count(*)")
    assert "leave the trigger out" in str(refused.value)
    table.key_by("k").window(sessions("10s"), time="at").aggregate(c="count(*)").view("v")
    pond.insert("t", [row("a", n, at) for n, at in ((1, 1), (2, 9), (3, 17))])
    pond.drain()
    pond.delete("t", [{"n": 2}])  # it held the other two together
    pond.drain()
    assert pond.read("v").column("c").to_pylist() == [1, 1]


def test_a_row_that_comes_and_goes_within_an_epoch_does_not_count() -> None:
    pond = millpond.open("memory://", engine="inline", checks=True, parallelism=2)
    trigger = repeatedly(after_count(2))
    windowed = (
        pond.table("t", SCHEMA, key="n").key_by("k").window(tumbling("10s"), time="at", trigger=trigger)
    )
    windowed.aggregate(c="count(*)").view("v")
    pond.insert("t", [row("a", 1, 1), row("a", 2, 1)])
    pond.delete("t", [{"n": 1}])
    pond.drain()
    assert pond.read("v").num_rows == 0
    pond.insert("t", [row("a", 3, 1)])
    pond.drain()
    assert pond.read("v").column("c").to_pylist() == [2]


def test_a_deletion_counts_like_an_insertion() -> None:
    pond = millpond.open("memory://", engine="inline", checks=True, parallelism=2)
    trigger = repeatedly(after_count(2))
    windowed = (
        pond.table("t", SCHEMA, key="n").key_by("k").window(tumbling("10s"), time="at", trigger=trigger)
    )
    windowed.aggregate(c="count(*)").view("v")
    shown = lambda: pond.read("v").column("c").to_pylist()  # noqa: E731
    pond.insert("t", [row("a", n, 1) for n in (1, 2, 3)])
    pond.drain()
    assert shown() == [3]
    pond.delete("t", [{"n": 1}])
    pond.drain()
    assert shown() == [3], "one row has changed"
    pond.delete("t", [{"n": 2}])
    pond.drain()
    assert shown() == [1]


def test_a_row_that_moves_to_another_input_of_a_union_does_not_count() -> None:
    pond = millpond.open("memory://", engine="inline", checks=True, parallelism=2)
    a, b = (pond.table(name, SCHEMA, key="n") for name in "ab")
    trigger = repeatedly(after_count(2))
    a.union(b).key_by("k").window(tumbling("10s"), time="at", trigger=trigger).aggregate(c="count(*)").view(
        "v"
    )
    pond.insert("a", [row("a", 1, 1)])
    pond.drain()
    pond.delete("a", [{"n": 1}])
    pond.insert("b", [row("a", 1, 1)])
    pond.drain()
    assert pond.read("v").num_rows == 0
    pond.insert("b", [row("a", 2, 1)])
    pond.drain()
    assert pond.read("v").column("c").to_pylist() == [2]


@pytest.mark.parametrize("on_close", [False, True])
def test_sessions_of_both_sides_are_joined(on_close: bool) -> None:
    """Rows are in one session if they follow each other within the gap, whichever side they are on."""
    run = Run()
    other = MemorySource({"k": str, "mark": str, "at": datetime.datetime})
    clicks = run.pond.stream("clicks", other).watermark("at", "0s").select("k", "at", side="mark")
    left = run.stream.key_by("k").window(sessions("5s"), on_close=on_close)
    right = clicks.key_by("k").window(sessions("5s"), on_close=on_close)
    left.join(right, "left").view("pairs")
    other.push([{"k": "a", "mark": "x", "at": at(4)}, {"k": "a", "mark": "y", "at": at(30)}])
    run.step([row("a", 1, 0), row("a", 2, 8), row("b", 3, 5), row("a", 4, 20)])
    other.push([{"k": "c", "mark": "z", "at": at(100)}])
    run.step([row("c", 9, 100)])
    found = [
        (r["k"], r["n"], r["side"], (r["window_end"] - r["window_start"]).seconds)
        for r in run.pond.read("pairs").to_pylist()
    ]
    open_yet = [] if on_close else [("c", 9, "z", 5)]
    assert sorted(found, key=str) == sorted(
        [
            ("a", 1, "x", 13),
            ("a", 2, "x", 13),
            ("a", 4, None, 5),
            ("b", 3, None, 5),
            *open_yet,
        ],
        key=str,
    )


def test_sessions_close_on_both_sides_or_on_none() -> None:
    run = Run()
    by_key = run.stream.key_by("k")
    with pytest.raises(InvalidError, match="close together"):
        by_key.window(sessions("5s"), on_close=True).join(by_key.window(sessions("5s")))


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"on_close": True},
        {"trigger": repeatedly(after_count(3))},
        {"trigger": repeatedly(after_count(2)), "mode": "discarding"},
        {"trigger": repeatedly(after_count(2)), "allowed_lateness": "1s"},
        {"trigger": repeatedly(after_count(2)), "panes": True},
    ],
)
def test_joined_windows_need_the_same_trigger_on_both_sides(other: Any) -> None:
    run = Run()
    by_key = run.stream.key_by("k")
    one = by_key.window(tumbling("5s"), trigger=repeatedly(after_count(2)))
    for sides in (
        (one, by_key.window(tumbling("5s"), **other)),
        (by_key.window(tumbling("5s"), **other), one),
    ):
        with pytest.raises(InvalidError, match="need the same trigger, mode, allowed lateness and panes"):
            sides[0].join(sides[1])


@pytest.mark.parametrize("kind", ["right", "full"])
@pytest.mark.parametrize("mode", ["retracting", "accumulating", "discarding"])
def test_rows_without_a_left_side_are_in_the_pane_of_their_window(kind: Any, mode: Any) -> None:
    run = Run()
    other = MemorySource({"k": str, "n": int, "at": datetime.datetime})
    options: dict[str, Any] = {"trigger": repeatedly(after_count(2)), "mode": mode}
    right = run.pond.stream("r", other).watermark("at", "0s").key_by("k").window(tumbling("5s"), **options)
    joined = run.stream.key_by("k").window(tumbling("5s"), **options).join(right, kind)
    assert "pane_right" not in joined.columns
    joined.view("v")
    other.push([row("a", 1, 1)])
    run.step([row("b", 5, 1)])
    assert run.pond.read("v").num_rows == 0
    other.push([row("a", 2, 2)])
    run.step()
    found = [(r["k"], r["window_end"], r["n"], r["n_right"]) for r in run.pond.read("v").to_pylist()]
    assert sorted(found) == [("a", at(5), None, 1), ("a", at(5), None, 2)]
    run.step([row("a", 3, 3), row("a", 4, 3)])
    found = [(r["n"], r["n_right"]) for r in run.pond.read("v").to_pylist()]
    kept = [] if kind == "right" else [(3, None), (4, None)]
    alone = [(None, 1), (None, 2), *kept]
    pairs = [(n, m) for n in (3, 4) for m in (1, 2)]
    assert sorted(found, key=str) == sorted(alone if mode == "discarding" else pairs, key=str)


def test_rows_after_the_last_pane_of_a_join_are_late() -> None:
    run = Run()
    by_key = run.stream.key_by("k")
    one = by_key.window(tumbling("5s"), trigger=after_count(2))
    one.join(by_key.window(tumbling("5s"), trigger=after_count(2))).view("v")
    run.step([row("a", 1, 1)])  # on both sides
    assert run.pond.read("v").num_rows == 1
    run.step([row("a", 2, 1)])
    assert run.pond.read("v").num_rows == 1
    step = next(s for s in run.pond.plan.nodes if s.endswith(".trigger"))
    assert run.pond.late(step).num_rows == 2


def test_sessions_with_different_gaps_cannot_be_joined() -> None:
    run = Run()
    by_key = run.stream.key_by("k")
    left, right = by_key.window(sessions("n")), by_key.window(sessions("n * 2"))
    assert "GapExpression(expression='n * 2')" in repr(right)
    with pytest.raises(InvalidError, match="the same windows"):
        left.join(right)


JOINED = {
    "inner": [(1, 7)],
    "left": [(1, 7), (2, None)],
    "right": [(1, 7), (None, 8)],
    "full": [(1, 7), (2, None), (None, 8)],
    "semi": [(1, None)],
    "anti": [(2, None)],
}


@pytest.mark.parametrize("windows", [tumbling("10s"), sliding("10s", "10s", offset="1s"), sessions("3s")])
@pytest.mark.parametrize("kind", JOINED)
def test_a_join_of_windows_that_close_waits_for_both_sides(kind: Any, windows: Windows) -> None:
    """The left windows end long before the right ones; no pair is taken back, whatever the join shows alone."""
    run = Run()
    other = MemorySource({"k": str, "m": int, "at": datetime.datetime})
    left = run.stream.key_by("k").window(windows, on_close=True)
    right = run.pond.stream("r", other).watermark("at", "0s").key_by("k").window(windows, on_close=True)
    joined = left.join(right, kind)
    joined.view("v")
    assert joined.shape.append_only
    run.step([row("x", 1, 1), row("y", 2, 2)], mark(100))
    assert run.pond.read("v").num_rows == 0
    other.push([{"k": "x", "m": 7, "at": at(1)}, {"k": "z", "m": 8, "at": at(2)}])
    run.step()
    assert run.pond.read("v").num_rows == 0
    other.push(mark(100))
    run.step()
    changes = [r for delta in run.pond.changes("v", since=0) for r in delta.table.to_pylist()]
    assert sorted(((r["n"], r.get("m")) for r in changes), key=str) == JOINED[kind]
    assert all(r["_w"] == 1 for r in changes)
