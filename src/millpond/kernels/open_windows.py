"""Runs the triggers of many windows through one epoch.

Law: rows are recorded before time moves, and a window is asked at most once for rows and once for time.
So the panes of an epoch do not depend on the order of rows (law 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from millpond.kernels.triggers import (
    NEVER,
    PROCESSING,
    WATERMARK,
    Bools,
    Cells,
    Clock,
    Ints,
    Trigger,
    TriggerTime,
)

EARLY, ON_TIME, LATE_PANE = "early", "on_time", "late"
FIRED, ENDED, FINISHED, WAITING = "_panes", "_ended", "_finished", "_waiting"
COUNTERS = (FIRED, ENDED, FINISHED, WAITING)
CELLS = "_t"


@dataclass(frozen=True)
class Firing:
    """Windows that fire, by number: the pane, its timing, and whether it is the last one."""

    window: Ints
    pane: Ints
    timing: Any  # texts
    last: Bools


class OpenWindows:
    """The windows of one task's epoch while their triggers run."""

    def __init__(
        self, trigger: Trigger, count: int, starts: Ints, ends: Ints, state: Mapping[str, Any]
    ) -> None:
        self.trigger = trigger
        self.count = count
        self.starts, self.ends = starts, ends
        self.fired, self.ended, finished, self.waiting = (
            np.asarray(state.get(name, np.zeros(count, np.int64)), np.int64).copy() for name in COUNTERS
        )
        self.finished: Bools = finished != 0
        self.cells = Cells(count, {c.name: state[c.name] for c in trigger.cells(CELLS) if c.name in state})
        self.firings: list[Firing] = []
        self.released = np.zeros(count, np.bool_)

    def moment(self, now_us: int, marks: Mapping[Clock, int | None]) -> TriggerTime:
        return TriggerTime(now_us, marks, self.starts, self.ends)

    def on_rows(self, at: TriggerTime, some: Bools, rows: Ints) -> None:
        """Record rows and ask the windows that got them."""
        self.waiting = np.where(some, self.waiting + rows, self.waiting)
        self.trigger.on_rows(self.cells, CELLS, at, some, rows)
        asks = some & ~self.finished & self.trigger.asks(self.cells, CELLS, at)
        self._fire(at, asks, np.where(at.reached(WATERMARK, self.ends), LATE_PANE, EARLY))

    def on_time(self, before: TriggerTime, at: TriggerTime, got_rows: Bools) -> None:
        """Ask the windows whose deadline passed since the moment before; each window is asked once."""
        by_clock, by_event = np.zeros(self.count, np.bool_), np.zeros(self.count, np.bool_)
        for clock in self.trigger.clocks:
            due = self.trigger.deadlines(self.cells, CELLS, at, clock)
            if clock == PROCESSING:
                by_clock |= at.reached(clock, due) & ~got_rows
            else:
                by_event |= at.reached(clock, due) & ~before.reached(clock, due)
        asks = (by_clock | by_event) & ~self.finished & self.trigger.asks(self.cells, CELLS, at)
        first = by_event & (self.ended == 0)  # a firing by the clock after the end is late
        ended = at.reached(WATERMARK, self.ends)
        self._fire(at, asks, np.where(~ended, EARLY, np.where(first, ON_TIME, LATE_PANE)))

    def on_expiry(self, over: Bools) -> None:
        """Release the rows of windows that expire and whose trigger did not fire for them."""
        rest = over & ~self.finished & (self.waiting > 0)
        if rest.any():
            timing = np.where(self.ended == 0, ON_TIME, LATE_PANE)
            self._record(rest, timing, rest)

    def _fire(self, at: TriggerTime, asks: Bools, timing: Any) -> None:
        if asks.any():
            finished = asks & self.trigger.on_fire(self.cells, CELLS, at, asks)
            self._record(asks, timing, finished)

    def _record(self, some: Bools, timing: Any, finished: Bools) -> None:
        which = np.flatnonzero(some)
        self.firings.append(Firing(which, self.fired[which], timing[which], finished[which]))
        self.fired = self.fired + some
        self.ended = self.ended + (some & (timing != EARLY))
        self.finished = self.finished | finished
        self.released = self.released | some
        self.waiting = np.where(some, 0, self.waiting)

    def deadlines(self, at: TriggerTime, clock: Clock, expiry: Ints | None) -> Ints:
        """The next time on a clock at which each window must be asked; NEVER if there is none."""
        found: Ints = np.full(self.count, NEVER)
        if clock in self.trigger.clocks:
            found = self.trigger.deadlines(self.cells, CELLS, at, clock)
        found = np.where(self.finished | at.reached(clock, found), NEVER, found)
        if clock == WATERMARK and expiry is not None:
            found = np.where((self.waiting > 0) & ~self.finished, np.minimum(found, expiry), found)
        if clock == PROCESSING:
            found = np.where(found < NEVER, -(-found // 1000) * 1000, found)
        return found

    def state(self) -> Iterator[tuple[str, Ints]]:
        counters = (self.fired, self.ended, self.finished.astype(np.int64), self.waiting)
        yield from zip(COUNTERS, counters, strict=True)
        for cell in self.trigger.cells(CELLS):
            yield cell.name, self.cells[cell.name]
