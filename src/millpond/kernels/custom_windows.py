"""Windows that a user's function returns for each row."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.kernels import limited_calls
from millpond.kernels.python_rows import Row, python_rows
from millpond.kernels.user_code import TooLong, error_text, is_row_fault
from millpond.kernels.watchdog import limited
from millpond.kernels.window_assigners import Assigned, Ints, WindowAssigner

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
Instants = tuple[datetime.datetime, datetime.datetime]
WINDOWS_PER_ROW_MAX = 10_000


@dataclass(frozen=True)
class CustomWindows(WindowAssigner):
    """Windows that a user's function returns for each row, as pairs of start and end.

    `merge` gets the windows of a key, sorted, and returns those that they become.
    """

    function: Callable[[Row], Iterable[Instants]]
    merge: Callable[[list[Instants]], Iterable[Instants]] | None = None

    reads: ClassVar[tuple[str, ...] | None] = None

    @property
    def leaves_gaps(self) -> bool:
        return True

    @property
    def merges(self) -> bool:
        return self.merge is not None

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        row: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        failed: dict[int, str] = {}
        count = _AssignCalls()
        seconds = limited_calls.CALL_SECONDS_MAX
        with limited(count, int(seconds * 1_000_000), "a function that assigns windows"):
            for number, one in enumerate(python_rows(rows)):
                count.calls += 1
                try:
                    found = [window_us(window) for window in few(self.function(one))]
                except TooLong:  # not a fault of the row: another machine may be faster (law 3)
                    raise InvalidError(
                        f"the function of custom windows has not returned within {seconds:g} s",
                        detail=f"it was called with {one!r}"[:200],
                        hint="let it return at most a few windows, and wait for nothing",
                    ) from None
                except BaseException as error:
                    if not is_row_fault(error):
                        raise
                    failed[number] = error_text(error, self.function)
                    continue
                row += [number] * len(found)
                starts += [start for start, _ in found]
                ends += [end for _, end in found]
        columns = [np.array(values, np.int64) for values in (row, starts, ends)]
        return Assigned(columns[0], columns[1], columns[2], failed)


class _AssignCalls:
    """How many times a user's function was called."""

    calls = 0


def few(windows: Any, most: int = WINDOWS_PER_ROW_MAX) -> Iterable[Any]:
    """The windows that a function returned, unless there are too many."""
    for number, window in enumerate(windows):
        if number >= most:
            raise ValueError(f"more than {most:,} windows")
        yield window


def window_us(window: Any) -> tuple[int, int]:
    """A window of a user's function in microseconds.

    >>> window_us((datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 1, 0, 0, 1)))
    (0, 1000000)
    """
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise TypeError(f"a window is a pair of start and end, not {window!r}"[:200])
    start, end = (_instant_us(at) for at in window)
    if end <= start:
        raise ValueError(f"a window ends after its start, got {window[0]} and {window[1]}")
    return start, end


def _instant_us(at: Any) -> int:
    if not isinstance(at, datetime.datetime):
        raise TypeError(f"the bounds of a window are datetimes, not {type(at).__name__}")
    aware = at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)
    return (aware - _EPOCH) // datetime.timedelta(microseconds=1)
