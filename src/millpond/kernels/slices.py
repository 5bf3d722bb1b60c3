"""Slices: the parts of time that overlapping windows share.

Every window starts and ends at the edge of a slice, so it is a sequence of whole slices, and a row is in one
slice however many windows contain it.  All times are microseconds since 1970; functions take numbers or
arrays.

Law: the windows of a row are those of its slice: each end from `first` to `last` in steps of `step_us`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from millpond.errors import InvalidError
from millpond.kernels.custom_windows import WINDOWS_PER_ROW_MAX
from millpond.kernels.window_assigners import Cumulating, Sliding, WindowAssigner

SLICED_WINDOWS_PER_ROW_MAX = 1_000_000


@dataclass(frozen=True)
class Slicing:
    """
    >>> hourly = Slicing(width_us=20, step_us=40, size_us=60, offset_us=0)  # windows of 60, every 40
    >>> at = hourly.slice_of(95)
    >>> at, hourly.first(at), hourly.last(at), hourly.start(100)
    (80, 100, 140, 40)
    """

    width_us: int  # of a slice
    step_us: int  # between the ends of two windows
    size_us: int  # of the longest window
    offset_us: int
    grows: bool = False  # windows of one start grow up to the size, instead of sliding

    def slice_of(self, at: Any) -> Any:
        """The start of the slice that contains a time."""
        return (at - self.offset_us) // self.width_us * self.width_us + self.offset_us

    def first(self, start: Any) -> Any:
        """The end of the first window that contains a slice."""
        end = start + self.width_us
        return end + (self._phase - end) % self.step_us

    def last(self, start: Any) -> Any:
        """The end of the last window that contains a slice."""
        if self.grows:
            return start - (start - self.offset_us) % self.size_us + self.size_us
        end = start + self.size_us
        return end - (end - self._phase) % self.step_us

    def closed(self, limit: Any) -> Any:
        """The end of the last window that ends at or before a time."""
        return limit - (limit - self._phase) % self.step_us

    def start(self, end: Any) -> Any:
        """The start of the window with this end."""
        if self.grows:
            inside = end - self.step_us
            return inside - (inside - self.offset_us) % self.size_us
        return end - self.size_us

    @property
    def _phase(self) -> int:
        """The end of some window."""
        return self.offset_us if self.grows else self.offset_us + self.size_us


def slicing_of(windows: WindowAssigner) -> Slicing | None:
    """How windows are made of slices, if they overlap."""
    if isinstance(windows, Cumulating):
        return Slicing(windows.step_us, windows.step_us, windows.size_us, windows.offset_us, grows=True)
    if isinstance(windows, Sliding) and windows.slide_us < windows.size_us:
        return Slicing(windows.width_us, windows.slide_us, windows.size_us, windows.offset_us)
    return None


def windows_per_row(windows: WindowAssigner) -> int:
    """The largest number of windows that contain a row, of windows that have a size.

    >>> windows_per_row(Sliding(60, 25)), windows_per_row(Cumulating(5, 60))
    (3, 12)
    """
    if isinstance(windows, Sliding):
        return math.ceil(windows.size_us / windows.slide_us)
    return windows.size_us // windows.step_us if isinstance(windows, Cumulating) else 1


def check_windows_per_row(windows: WindowAssigner, step: str | None, *, sliced: bool = False) -> None:
    """Refuse windows that would repeat each row, or each key in the output, too often."""
    most = SLICED_WINDOWS_PER_ROW_MAX if sliced else WINDOWS_PER_ROW_MAX
    found = windows_per_row(windows)
    if found <= most:
        return
    shared = "" if sliced else ", or emit aggregates of windows when they close: those share slices"
    raise InvalidError(
        f"each row is in {found:,} windows, and at most {most:,} are allowed",
        detail=str(windows),
        hint=f"make the size shorter or the slide longer{shared}",
        step=step,
    )
