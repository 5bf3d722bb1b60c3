"""Bounds: columns whose later values watermarks limit, and the state that expires by them.

Law: after an epoch every later row of a stream, inserted or retracted, has in a
bounded column a value that is not below the limit.  The limit is the least of some
watermarks, each shifted by a fixed time.  On a grid (windows) later values are above it.
So table rows behind the limit can match no later row: the table is stored in
buckets by that column, and buckets behind the limit are dropped
(laws 1 and 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from millpond.ordering import distinct
from millpond.state.tables.table_spec import TableSpec

Ask = Callable[[str], int | None]


@dataclass(frozen=True)
class Bound:
    """
    >>> end = Bound("window_end", (("s.watermark", 0),), width_us=10, grid=True)
    >>> end.limit({"s.watermark": 25}.get), end.first_open(25), end.first_open(20)
    (25, 3, 3)
    """

    column: str
    marks: tuple[tuple[str, int], ...]  # (step, shift): the limit is the least of watermark - shift
    width_us: int  # of the buckets in which tables store rows
    grid: bool = False  # values are multiples of the width, and later ones are above the limit
    window: Literal["", "open", "closed"] = ""  # the start or end of a window; closed: emitted at its end
    by: str = ""  # the step that assigned the window

    def limit(self, ask: Ask) -> int | None:
        """The current limit; None while a watermark is unknown."""
        found = [(ask(step), shift) for step, shift in self.marks]
        known = [bound - shift for bound, shift in found if bound is not None]
        return min(known) if known and len(known) == len(found) else None

    def first_open(self, limit: int) -> int:
        """The first bucket that may contain a later row."""
        return limit // self.width_us + (1 if self.grid else 0)

    def passed(self, values: Any, limit: int) -> Any:
        """Which values no later row can have."""
        return values <= limit if self.grid else values < limit

    def passed_at(self, values: Any, clock: Bound) -> Any:
        """The least limit of `clock`, a bound by the same watermarks, at which each value is passed."""
        return values + (self.marks[0][1] - clock.marks[0][1]) + (0 if self.grid else 1)

    def named(self, step: str) -> str:
        """The step whose watermark is the limit; that of several is named by the step that has it."""
        return self.marks[0][0] if len(self.marks) == 1 and self.marks[0][1] == 0 else step

    def moved(self, more_us: int) -> tuple[tuple[str, int], ...]:
        return tuple((step, shift + more_us) for step, shift in self.marks)

    # -- tables ------------------------------------------------------------------------

    def drops(self, ask: Ask, *tables: TableSpec) -> tuple[tuple[str, int], ...]:
        """The buckets of these tables to drop, as (table, bucket) for an operator's result."""
        limit = self.limit(ask)
        return () if limit is None else tuple((t.name, self.first_open(limit)) for t in tables)

    def is_due(self, table: str, earliest: Mapping[str, int], watermarks: Mapping[str, int]) -> bool:
        """Whether there is a bucket to drop."""
        first, limit = earliest.get(table), self.limit(watermarks.get)
        return first is not None and limit is not None and first < self.first_open(limit)


def bucketed_by(bound: Bound | None) -> dict[str, Any]:
    """The bucketing of a table with this bound, as arguments of its spec."""
    return {} if bound is None else {"time": bound.column, "bucket_width": bound.width_us}


def buckets_of(spec: TableSpec, rows: pa.Table) -> frozenset[int] | None:
    """The buckets that contain rows with these values, if the table has buckets and the rows the column."""
    if spec.time is None or spec.time not in rows.column_names:
        return None
    return frozenset(distinct(spec.buckets(rows)).tolist())


def closed(bounds: Sequence[Bound], until: Bound) -> tuple[Bound, ...]:
    """The bounds of rows that are emitted when their window closes: those of that window, and no others.

    `until` is the bound that closes it, perhaps with more watermarks than the stream's own.
    """
    mine = next(b for b in bounds if b.column == until.column)
    most = max(shift for _, shift in mine.marks)
    found = []
    for bound in bounds:
        if bound == mine or (bound.by == mine.by and bound.window):
            later = max(shift for _, shift in bound.marks) - most
            found.append(replace(bound, marks=until.moved(later), window="closed"))
    return tuple(found)


def among(bounds: Sequence[Bound], columns: Sequence[str]) -> tuple[Bound, ...]:
    return tuple(b for b in bounds if b.column in columns)


def for_key(bounds: Sequence[Bound], key: Sequence[str]) -> Bound | None:
    """The bound by which the state of a key expires: a window is preferred to any other time."""
    found = sorted(among(bounds, key), key=lambda b: not b.grid)
    return found[0] if found else None


def of_all(parts: Sequence[Sequence[Bound]]) -> tuple[Bound, ...]:
    """The bounds of rows that come from any of several streams with the same columns."""
    found = []
    for one in parts[0]:
        same = [next((b for b in others if b.column == one.column), None) for others in parts]
        if any(b is None for b in same):
            continue
        bounds = [b for b in same if b is not None]
        watermarks = tuple(sorted({m for b in bounds for m in b.marks}))
        widths = [b.width_us for b in bounds]
        kinds = {b.window for b in bounds}
        found.append(
            replace(
                one,
                marks=watermarks,
                width_us=int(np.gcd.reduce(widths)) if all(b.grid for b in bounds) else max(widths),
                grid=all(b.grid for b in bounds),
                window="open" if "open" in kinds else one.window if len(kinds) == 1 else "",
            )
        )
    return tuple(found)
