"""Window assigners: the windows [start, end) that contain each time, for many times at once.

An assigner is frozen data.  `assign` returns, for every pair of a row and a window that contains it, the
number of the row and the start and end of the window, in microseconds since 1970.  Windows of merging
assigners (sessions) are those of single rows; windows of one key that overlap are merged by the operators.
"""

from __future__ import annotations

import datetime
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.identity import one_chunk
from millpond.kernels.python_rows import Row, python_rows
from millpond.kernels.user_code import is_row_fault, told

Ints = npt.NDArray[np.int64]

CalendarUnit = Literal["day", "week", "month", "year"]
FIRST_US = -62135596800_000_000  # the year 1
LAST_US = 253402300799_999_999  # the end of the year 9999
_DAY_US = 86_400_000_000
_ORDINAL_1970 = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Assigned:
    """The windows of rows: row number, start and end of each pair; and why rows could not be assigned."""

    row: Ints
    start: Ints
    end: Ints
    failed: Mapping[int, str] = field(default_factory=dict)

    def some(self, which: npt.NDArray[np.bool_]) -> Assigned:
        return replace(self, row=self.row[which], start=self.start[which], end=self.end[which])


class WindowAssigner(ABC):
    """How rows are put into windows; see `millpond.windows`."""

    reads: ClassVar[tuple[str, ...] | None] = ()  # the columns that it reads besides the time; None if any
    takes: ClassVar[tuple[str, ...]] = ()  # those of them that are not part of the output

    @property
    def merges(self) -> bool:
        """Are windows of a key that overlap one window?"""
        return False

    @abstractmethod
    def assign(self, at: Ints, rows: pa.Table) -> Assigned: ...

    @property
    def span_us(self) -> int | None:
        """The length of every window, if all have the same."""
        return None

    @property
    def width_us(self) -> int:
        """The width of the buckets in which state is stored by the end of its window."""
        return 3_600_000_000

    @property
    def on_grid(self) -> bool:
        """Are all ends multiples of the width?"""
        return False

    @property
    def ends(self) -> bool:
        """Does a watermark ever pass the end of a window?"""
        return True


@dataclass(frozen=True)
class Tumbling(WindowAssigner):
    """Windows of one size that follow each other without gaps."""

    size_us: int
    offset_us: int = 0

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        start = (at - self.offset_us) // self.size_us * self.size_us + self.offset_us
        return Assigned(np.arange(len(at)), start, start + self.size_us)

    @property
    def span_us(self) -> int:
        return self.size_us

    @property
    def width_us(self) -> int:
        return self.size_us

    @property
    def on_grid(self) -> bool:
        return self.offset_us % self.size_us == 0


@dataclass(frozen=True)
class Sliding(WindowAssigner):
    """Windows of one size that start at a fixed interval; if that is longer, some rows are in none."""

    size_us: int
    slide_us: int
    offset_us: int = 0

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        last = (at - self.offset_us) // self.slide_us * self.slide_us + self.offset_us
        count = np.maximum((self.size_us - (at - last) + self.slide_us - 1) // self.slide_us, 0)
        row = np.repeat(np.arange(len(at)), count)
        back = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        start = last[row] - back * self.slide_us
        return Assigned(row, start, start + self.size_us)

    @property
    def span_us(self) -> int:
        return self.size_us

    @property
    def width_us(self) -> int:
        return math.gcd(self.size_us, self.slide_us)

    @property
    def on_grid(self) -> bool:
        return self.offset_us % self.width_us == 0


@dataclass(frozen=True)
class Cumulating(WindowAssigner):
    """Windows of one start that grow by a step up to a size, which is a multiple of the step."""

    step_us: int
    size_us: int
    offset_us: int = 0

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        first = (at - self.offset_us) // self.size_us * self.size_us + self.offset_us
        before = (at - first) // self.step_us  # the number of windows of this start that end before the row
        count = self.size_us // self.step_us - before
        row = np.repeat(np.arange(len(at)), count)
        more = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        start = first[row]
        return Assigned(row, start, start + (before[row] + 1 + more) * self.step_us)

    @property
    def width_us(self) -> int:
        return self.step_us

    @property
    def on_grid(self) -> bool:
        return self.offset_us % self.step_us == 0


@dataclass(frozen=True)
class Everything(WindowAssigner):
    """One window with all rows; it ends with the year 9999."""

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        return Assigned(np.arange(len(at)), np.full(len(at), FIRST_US), np.full(len(at), LAST_US))

    @property
    def ends(self) -> bool:
        return False


@dataclass(frozen=True)
class Counting(WindowAssigner):
    """Windows of `n` rows that start every `step` rows; `operators.count_windows` assigns them."""

    n: int
    step: int
    timeout_us: int | None = None

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        raise NotImplementedError("rows are counted by a step of their own")


@dataclass(frozen=True)
class Calendar(WindowAssigner):
    """Days, weeks (from Monday), months or years of a time zone.

    A day begins with the first moment of its date, so a day at a change of the clocks has 23 or 25 hours.
    """

    unit: CalendarUnit
    zone: str = "UTC"

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        days = at // _DAY_US
        distinct, inverse = np.unique(days, return_inverse=True)
        starts, ends = np.empty(len(at), np.int64), np.empty(len(at), np.int64)
        # The local date of a time is its UTC date or one next to it.
        done = np.zeros(len(at), np.bool_)
        for shift in (-1, 0, 1):
            bounds = np.array([_bounds(self.unit, self.zone, int(day) + shift) for day in distinct], np.int64)
            start, end = bounds[:, 0][inverse], bounds[:, 1][inverse]
            inside = ~done & (start <= at) & (at < end)
            starts[inside], ends[inside] = start[inside], end[inside]
            done |= inside
        return Assigned(np.arange(len(at)), starts, ends)

    @property
    def width_us(self) -> int:
        return _DAY_US


@lru_cache(maxsize=100_000)
def _bounds(unit: CalendarUnit, zone: str, day: int) -> tuple[int, int]:
    """The start and end, in microseconds, of the calendar unit that contains a date (days since 1970)."""
    ordinal = min(max(day + _ORDINAL_1970, 1), datetime.date.max.toordinal())
    date = datetime.date.fromordinal(ordinal)
    if unit == "week":
        first = ordinal - date.weekday()
        return _begin(first, zone), _begin(first + 7, zone)
    if unit == "month":
        after = (date.year + 1, 1) if date.month == 12 else (date.year, date.month + 1)
        return _begin(date.replace(day=1).toordinal(), zone), _begin(_ordinal(*after), zone)
    if unit == "year":
        return _begin(_ordinal(date.year, 1), zone), _begin(_ordinal(date.year + 1, 1), zone)
    return _begin(ordinal, zone), _begin(ordinal + 1, zone)


def _ordinal(year: int, month: int) -> int:
    last = datetime.date.max.toordinal() + 1
    return last if year > 9999 else datetime.date(year, month, 1).toordinal()


@lru_cache(maxsize=100_000)
def _begin(ordinal: int, zone: str) -> int:
    """The first moment of a local date, in microseconds since 1970."""
    naive_us = (ordinal - _ORDINAL_1970) * _DAY_US
    if not 2 <= ordinal < datetime.date.max.toordinal():
        return naive_us  # zones are of no interest at the ends of the calendar
    date = datetime.date.fromordinal(ordinal)
    local = datetime.datetime.combine(date, datetime.time(), ZoneInfo(zone))
    moment = local.astimezone(datetime.UTC)
    # Midnight does not exist where clocks go forward at midnight: the day begins when they have.
    if moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) != local.replace(tzinfo=None):
        moment = _after_gap(local)
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


def _after_gap(local: datetime.datetime) -> datetime.datetime:
    """The moment at which the clocks jumped over a local time that does not exist."""
    before = local.replace(fold=1).astimezone(datetime.UTC)
    after = local.replace(fold=0).astimezone(datetime.UTC)
    low, high = min(before, after), max(before, after)
    zone = local.tzinfo
    while high - low > datetime.timedelta(microseconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(zone).replace(tzinfo=None) < local.replace(tzinfo=None):
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True)
class Gap(WindowAssigner):
    """Sessions: windows of a key that overlap are merged; each row alone is [time, time + gap)."""

    gap_us: int

    @property
    def merges(self) -> bool:
        return True

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        return Assigned(np.arange(len(at)), at, at + self.gap_us)

    @property
    def width_us(self) -> int:
        return max(self.gap_us // 4, 1_000_000)


GAP = "window_gap"
NO_GAP = "the gap of a session must be positive"


@dataclass(frozen=True)
class GapExpression(WindowAssigner):
    """Sessions whose gap is an SQL expression of the row; `window()` computes it as a column."""

    expression: str

    @property
    def merges(self) -> bool:
        return True

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        raise NotImplementedError("the gap is computed by a step before this one")


@dataclass(frozen=True)
class GapColumn(WindowAssigner):
    """Sessions whose gap is a column of the row, in microseconds."""

    reads: ClassVar[tuple[str, ...] | None] = (GAP,)
    takes: ClassVar[tuple[str, ...]] = (GAP,)

    @property
    def merges(self) -> bool:
        return True

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        gaps = one_chunk(rows.column(GAP))
        values = gaps.fill_null(0).to_numpy(zero_copy_only=False)
        good = values > 0
        failed = {int(n): f"{NO_GAP}, got {gaps[int(n)].as_py()}" for n in np.flatnonzero(~good)}
        row = np.flatnonzero(good)
        return Assigned(row, at[good], at[good] + values[good], failed)


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
    def merges(self) -> bool:
        return self.merge is not None

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        row: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        failed: dict[int, str] = {}
        for number, one in enumerate(python_rows(rows)):
            try:
                found = [window_us(window) for window in _few(self.function(one))]
            except BaseException as error:
                if not is_row_fault(error):
                    raise
                failed[number] = told(error, self.function)
                continue
            row += [number] * len(found)
            starts += [start for start, _ in found]
            ends += [end for _, end in found]
        columns = [np.array(values, np.int64) for values in (row, starts, ends)]
        return Assigned(columns[0], columns[1], columns[2], failed)


def _few(windows: Any) -> Iterable[Any]:
    for number, window in enumerate(windows):
        if number >= WINDOWS_PER_ROW_MAX:
            raise ValueError(f"a row is in more than {WINDOWS_PER_ROW_MAX} windows")
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
