"""Overlapping windows that share slices: which aggregates they can have, and the steps for them.

Windows that close store slices.  Windows that follow every row are stored themselves: there, the rows of an
epoch are grouped by slice, and the groups are spread over their windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond import tuning
from millpond.kernels.accumulators import EXTREMES
from millpond.kernels.aggregate_feeds import Agg
from millpond.kernels.bounds import Bound
from millpond.kernels.slices import slicing_of, windows_per_row
from millpond.kernels.synopses.sketch_accumulators import needs_inserts
from millpond.kernels.window_assigners import WindowAssigner
from millpond.operators.sliding_aggregate import SlidingAggregate
from millpond.operators.window import END, START, Spread


@dataclass(frozen=True)
class SharedSlices:
    """Windows of a key that are emitted when they close, of rows that have a slice."""

    key: tuple[str, ...]  # without the slice
    windows: WindowAssigner
    until: Bound
    time: pa.DataType  # of the window's columns
    base: str  # how the ids of steps begin

    @property
    def default(self) -> str:
        """The id of a step without one: as if rows had windows, so that it does not depend on this choice."""
        return f"{self.base}.by-{'-'.join((*self.key, START, END))}"

    def aggregate(self, aggs: Sequence[Agg]) -> SlidingAggregate:
        shown = (*self.key, START, END)
        return SlidingAggregate(self.key, tuple(aggs), self.windows, self.until, shown, START, END, self.time)


@dataclass(frozen=True)
class SpreadGroups:
    """Windows of a key that follow every row, of rows that have their latest window and their first one."""

    key: tuple[str, ...]  # without the window
    spread: Spread
    base: str  # how the ids of steps begin

    @property
    def default(self) -> str:
        """The id of a step without one, as in `SharedSlices`."""
        return f"{self.base}.by-{'-'.join((*self.key, START, END))}"


def worth_slices(windows: WindowAssigner) -> bool:
    """Are these windows that share slices, and is a row in so many of them that it pays off?"""
    return slicing_of(windows) is not None and windows_per_row(windows) >= tuning.SLICED_WINDOWS_MIN


def can_share(aggs: Sequence[Agg], append_only: bool) -> bool:
    """Can the aggregates of windows be computed from those of slices?

    DISTINCT needs the values, a sketch that is no sum cannot lose a slice, and the extremes of rows that
    can be retracted need an index of them.
    """
    return all(
        not a.distinct and not needs_inserts(a.function) and (append_only or a.function not in EXTREMES)
        for a in aggs
    )
