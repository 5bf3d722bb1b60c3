"""Sessions with triggers where the windows that merge are in different phases, and the end of their state."""

from __future__ import annotations

import pytest

from millpond.triggers import after_count, after_watermark, always, every, repeatedly
from millpond.windows import Windows, sessions, tumbling
from tests.unit.flow.test_windowed import Run, at, mark, row


@pytest.mark.parametrize(
    ("bridge", "end", "asked"),
    [
        (
            (4, 8, 12, 16),
            25,
            [("a", 6, "on_time", 1)],
        ),  # the part that waited for its end ends with the session
        ((4, 8, 12, 16, 22), 27, []),  # the session is longer: nothing waits for its end
    ],
)
def test_a_session_in_its_late_phase_is_asked_at_its_end_if_a_part_was_not(
    bridge: tuple[int, ...], end: int, asked: list[object]
) -> None:
    """As in Beam: a deadline stays if its window ends where the merged one does."""
    run = Run()
    windowed = run.stream.key_by("k").window(
        sessions("5s"),
        trigger=after_watermark(late=always()),
        allowed_lateness="1h",
        mode="accumulating",
        panes=True,
    )
    windowed.aggregate(n="count(*)").view("v")
    shown = ("k", "n", "pane_timing")
    run.step([row("a", 1, 0)])
    run.step(mark(6))
    assert run.panes("v", *shown) == [("a", 1, "on_time", 1)]
    run.step([row("a", 1, 20)])
    assert run.panes("v", *shown) == []
    run.step([row("a", 1, second) for second in bridge])
    assert run.panes("v", *shown) == [("a", 2 + len(bridge), "early", 1)]
    run.step(mark(end - 0.000001))
    assert run.panes("v", *shown) == []
    run.step(mark(end))
    assert run.panes("v", *shown) == asked


@pytest.mark.parametrize("mode", ["retracting", "accumulating", "discarding"])
def test_a_session_that_has_expired_takes_no_more_rows_while_it_is_stored(mode: str) -> None:
    """State is dropped by whole buckets of time, so the session is still stored when the next row comes."""
    run = Run()
    windowed = run.stream.key_by("k").window(sessions("10s"), trigger=repeatedly(after_count(1)), mode=mode)  # type: ignore[arg-type]
    windowed.aggregate(n="count(*)").view("v")
    run.step([row("a", 1, 1)])
    run.step([row("b", 1, 11.5)])  # the watermark is after the end at 11, and within its bucket
    assert [s.rows for s in run.pond.states() if s.state == "windows"] == [2]
    run.step([row("a", 1, 5)])  # its own window ends at 15
    found = sorted((r["k"], r["window_start"], r["n"]) for r in run.pond.read("v").to_pylist())
    assert found == [("a", at(1), 1), ("a", at(5), 1), ("b", at(11.5), 1)]


@pytest.mark.parametrize("windows", [tumbling("10s"), sessions("4s")], ids=str)
@pytest.mark.parametrize("trigger", [repeatedly(after_count(1)), every("5s")], ids=str)
def test_state_of_windows_that_wait_for_nothing_is_dropped_without_rows(
    windows: Windows, trigger: object
) -> None:
    """No deadline is left; that the watermark passes the end is enough."""
    run = Run()
    windowed = run.stream.key_by("k").window(windows, trigger=trigger, allowed_lateness="3s")  # type: ignore[arg-type]
    windowed.aggregate(n="count(*)").view("v")
    run.step([row("a", 1, 1), row("b", 1, 2)])
    state = lambda: sum(s.rows for s in run.pond.states() if s.state in ("windows", "rows"))  # noqa: E731
    assert state() > 0
    run.step(mark(1000))
    assert state() == 0
