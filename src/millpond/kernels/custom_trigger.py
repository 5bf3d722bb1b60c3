"""CustomTrigger: a trigger of a user's pure functions over one whole number of state per window.

Law 3: the functions see the state, the number of rows and the time of the epoch, never the order of rows.
They must be pure: a window may be asked more than once in an epoch.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from millpond.errors import InvalidError
from millpond.kernels.limited_calls import limited_calls
from millpond.kernels.triggers import (
    NEVER,
    WATERMARK,
    Bools,
    Cells,
    Clock,
    Ints,
    StateCell,
    Trigger,
    TriggerTime,
)

_EPOCH = datetime.datetime(1970, 1, 1)
STATE_MAX = 2**62


@dataclass(frozen=True)
class TriggerEvent:
    """What the functions of a custom trigger see: new rows of a window, its bounds, and the time in UTC.

    The watermark is the least datetime while it is unknown.
    """

    rows: int
    window_start: datetime.datetime
    window_end: datetime.datetime
    watermark: datetime.datetime
    now: datetime.datetime


OnRows = Callable[[int, TriggerEvent], int]
Fires = Callable[[int, TriggerEvent], bool]


@dataclass(frozen=True)
class CustomTrigger(Trigger):
    """Fires when `fires` says so for the state that `on_rows` computed; the state then starts again."""

    take_rows: OnRows
    fires: Fires
    start: int = 0
    once: bool = False  # is the first firing the last?
    at_end: bool = False  # is a window with rows also asked when the watermark passes its end?

    @property
    def clocks(self) -> frozenset[Clock]:
        return frozenset({WATERMARK}) if self.at_end else frozenset()

    @property
    def may_finish(self) -> bool:
        return self.once

    def cells(self, path: str) -> Iterator[StateCell]:
        yield StateCell(f"{path}_state", "sum")
        yield StateCell(f"{path}_armed", "max_at_end")

    def on_rows(self, cells: Cells, path: str, at: TriggerTime, some: Bools, rows: Ints) -> None:
        state = cells[f"{path}_state"].copy()
        with limited_calls("on_rows of a custom trigger") as call:
            for n in np.flatnonzero(some).tolist():
                found: Any = call(
                    self.take_rows, int(state[n]) + self.start, self._event(at, n, int(rows[n]))
                )
                if isinstance(found, bool) or not isinstance(found, int) or abs(found) >= STATE_MAX:
                    raise InvalidError(
                        "the state of a trigger must be a whole number of at most 62 bits",
                        detail=f"on_rows returned {found!r}"[:200],
                    )
                state[n] = found - self.start
        cells.put(f"{path}_state", some, state)
        cells.put(f"{path}_armed", some, 1)

    def asks(self, cells: Cells, path: str, at: TriggerTime) -> Bools:
        state = cells[f"{path}_state"]
        with limited_calls("fires of a custom trigger") as call:
            asked = [
                bool(call(self.fires, int(state[n]) + self.start, self._event(at, n, 0)))
                for n in range(cells.count)
            ]
        return np.array(asked, np.bool_)

    def on_fire(self, cells: Cells, path: str, at: TriggerTime, some: Bools) -> Bools:
        self.reset(cells, path, some)
        return some if self.once else np.zeros(cells.count, np.bool_)

    def reset(self, cells: Cells, path: str, some: Bools) -> None:
        cells.put(f"{path}_state", some, 0)  # stored as the difference to the start

    def deadlines(self, cells: Cells, path: str, at: TriggerTime, clock: Clock) -> Ints:
        if clock != WATERMARK or not self.at_end:
            return np.full(cells.count, NEVER)
        return np.where(cells[f"{path}_armed"] != 0, at.ends, NEVER)

    def _event(self, at: TriggerTime, n: int, rows: int) -> TriggerEvent:
        mark = at.marks.get(WATERMARK)
        return TriggerEvent(
            rows,
            _instant(int(at.starts[n])),
            _instant(int(at.ends[n])),
            datetime.datetime.min if mark is None else _instant(mark),
            _instant(at.now_us),
        )


def _instant(us: int) -> datetime.datetime:
    low, high = datetime.datetime.min, datetime.datetime.max
    try:
        return _EPOCH + datetime.timedelta(microseconds=us)
    except OverflowError:  # a watermark at the end of time
        return low if us < 0 else high
