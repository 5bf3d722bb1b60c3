"""Window assigners: the windows [start, end) that contain each time, for many times at once.

An assigner is frozen data.  `assign` returns, for every pair of a row and a window that contains it, the
number of the row and the start and end of the window, in microseconds since 1970.  Windows of merging
assigners (sessions) are those of single rows; windows of one key that overlap are merged by the operators.
Windows of a calendar are in `calendar_windows.py`, those of a user's function in `custom_windows.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.identity import one_chunk
from millpond.kernels.event_time import FIRST_US, LAST_US

Ints = npt.NDArray[np.int64]


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

    @property
    def leaves_gaps(self) -> bool:
        """Can a row be in no window?"""
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
    def leaves_gaps(self) -> bool:
        return self.slide_us > self.size_us

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
