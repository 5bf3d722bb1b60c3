"""Triggers of one window, asked directly: what they need to be asked about, and how their states merge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millpond.kernels.open_windows import CELLS, OpenWindows
from millpond.kernels.triggers import NEVER, PROCESSING, WATERMARK, AfterDelay, Cells, merged
from millpond.triggers import (
    Trigger,
    after_all,
    after_any,
    after_count,
    after_delay,
    after_each,
    after_watermark,
    always,
    every,
    never,
    repeatedly,
)

END = 10


class Window:
    """The window [0, 10) of one key: each call is an epoch, and returns the panes that it fires."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.state: dict[str, Any] = {}
        self.mark: int | None = None
        self.now = 0

    def epoch(self, rows: int = 0, mark: int | None = None, now: int | None = None) -> list[str]:
        windows = OpenWindows(self.trigger, 1, np.array([0]), np.array([END]), self.state)
        self.now = self.now if now is None else now
        before = windows.moment(self.now, {WATERMARK: self.mark})
        self.mark = self.mark if mark is None else mark
        after = windows.moment(self.now, {WATERMARK: self.mark})
        got = np.array([rows > 0])
        if rows:
            windows.on_rows(before, got, np.array([rows]))
        windows.on_time(before, after, got)
        self.state = dict(windows.state())
        self.deadline = {
            clock: int(windows.deadlines(after, clock, None)[0]) for clock in self.trigger.clocks
        }
        return [f"{f.pane[0]} {f.timing[0]}{' last' if f.last[0] else ''}" for f in windows.firings]


def test_a_period_is_aligned_to_the_clock_and_a_delay_to_the_first_row() -> None:
    for trigger, due in ((every("5s"), 15_000_000), (repeatedly(after_delay("5s")), 16_000_000)):
        window = Window(trigger)
        assert window.epoch(rows=1, now=11_000_000) == []
        assert window.deadline[PROCESSING] == due
        assert window.epoch(rows=1, now=12_000_000) == []
        assert window.deadline[PROCESSING] == due, "the second row does not defer it"
        assert window.epoch(now=due - 1) == []
        assert window.epoch(now=due) == ["0 early"]
        assert window.deadline[PROCESSING] == NEVER, "no row came since"


def test_the_end_of_a_window_asks_the_part_whose_turn_it_is() -> None:
    """The part that waited for the end has finished before it, by a row."""
    window = Window(after_each(after_any(after_watermark(), after_count(1)), always()))
    assert window.epoch(rows=1) == ["0 early"]
    assert window.deadline[WATERMARK] == END
    assert window.epoch(mark=END) == ["1 on_time"]


def test_a_delay_counts_only_in_its_turn() -> None:
    window = Window(after_each(after_count(2), after_delay("5s")))
    assert window.epoch(rows=1, now=1_000_000) == []
    assert window.deadline[PROCESSING] == NEVER
    assert window.epoch(rows=1, now=2_000_000) == ["0 early"]
    assert window.epoch(rows=1, now=3_000_000) == []
    assert window.deadline[PROCESSING] == 8_000_000
    assert window.epoch(now=8_000_000) == ["1 early last"]


@pytest.mark.parametrize(
    ("trigger", "may_fire", "may_finish"),
    [
        (after_each(after_count(1), never()), True, False),
        (after_each(never(), after_count(1)), False, False),
        (after_each(after_count(1), after_count(2)), True, True),
        (after_all(after_count(1), never()), False, False),
        (after_any(after_count(1), never()), True, True),
        (after_any(always(), never()), True, False),
        (repeatedly(never()), False, False),
        (repeatedly(after_count(1)), True, False),
        (after_watermark(), True, False),
    ],
)
def test_whether_a_trigger_can_fire_and_finish(trigger: Trigger, may_fire: bool, may_finish: bool) -> None:
    assert (trigger.may_fire, trigger.may_finish) == (may_fire, may_finish)


def test_windows_that_merge_wait_for_the_earliest_delay_that_is_set() -> None:
    cells = Cells(4, {f"{CELLS}_at": np.array([0, 7, 5, 0])})
    found = merged(AfterDelay(1), CELLS, cells, np.array([0, 0, 0, 1]), 2, np.ones(4, np.bool_))
    assert found[f"{CELLS}_at"].tolist() == [5, 0]


def test_a_deadline_by_the_clock_is_the_next_whole_millisecond() -> None:
    """Timers have that resolution: one that is rounded down would ask before the trigger wants to fire."""
    window = Window(repeatedly(after_delay("5s")))
    assert window.epoch(rows=1, now=1_000_001) == []
    assert window.deadline[PROCESSING] == 6_001_000
    assert window.epoch(now=6_000_000) == []
    assert window.epoch(now=6_001_000) == ["0 early"]
    whole = Window(repeatedly(after_delay("5s")))
    whole.epoch(rows=1, now=2_000_000)
    assert whole.deadline[PROCESSING] == 7_000_000
