"""Tumble and Hop: assign rows to windows by event time.

Linear: each row is repeated, with its weight, once per window
[window_start, window_end) that contains its time.  Windows are aligned to
1970-01-01 UTC plus an offset.  If a watermark bounds the time, it also bounds
`window_end`, which is after the time.  Later steps close windows by `window_end`:
it becomes the time of the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond import tuning
from millpond.errors import InvalidError
from millpond.kernels.accumulated import Accumulated
from millpond.kernels.accumulators import Accumulator
from millpond.kernels.bounds import Bound
from millpond.kernels.event_time import LIMIT_US, Ints, check_time, micros, without_distant, without_time
from millpond.kernels.expression_kernel import join_errors
from millpond.kernels.window_spread import can_spread, partial_columns, repeated, spread
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import AppliesByBatch, CarriesOrigin
from millpond.state.tables.table import KeySet

START = "window_start"
END = "window_end"
NO_WINDOW = "no_window"  # the count of rows that are in no window


@dataclass(frozen=True)
class Tumble(CarriesOrigin, AppliesByBatch):
    """Consecutive windows of `size_us` microseconds."""

    time: str
    size_us: int
    offset_us: int = 0

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        _check_positive("size", self.size_us, step)
        return _bind(shape, self.time, shape.key, step, self.size_us, self.size_us, self.offset_us)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed - {START, END} | {self.time},)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        return _assign(binding, inputs, self.time, self.size_us, self.size_us, self.offset_us)


@dataclass(frozen=True)
class Spread:
    """Expands partial rows of the latest window to all windows, by shifting these columns back.

    The windows of a row go from the one in the column `first`, or else from the oldest of `count`, to the
    latest one.
    """

    columns: tuple[str, ...]
    slide_us: int
    count: int
    first: str | None = None  # holds starts of windows; then so does the first one of `columns`

    @property
    def extra(self) -> tuple[str, ...]:
        """The columns of rows that say which windows they are in, besides those of the latest."""
        return () if self.first is None else (self.first,)

    def adds_up(self, kinds: Sequence[Accumulator | None]) -> bool:
        """Is it cheaper to add up the groups of each window than to repeat them?  Then each comes once."""
        return can_spread(kinds) and bool(self.columns) and self.count >= tuning.SPREAD_SUMS_WINDOWS_MIN

    def over(self, rows: pa.Table, key: Sequence[str], kinds: Sequence[Accumulator | None]) -> pa.Table:
        """Partial rows with the fields of accumulators, of a key that contains the columns of the window."""
        shifted = {name: micros(rows.column(name))[0] for name in self.columns}
        if not self.columns:  # each row counts once for each of its windows
            group = np.repeat(np.arange(rows.num_rows), self.count)
            return rows.take(pa.array(group))
        last = shifted[self.columns[0]]
        if self.first is None:
            first = last - (self.count - 1) * self.slide_us
        else:
            first, rows = micros(rows.column(self.first))[0], rows.drop_columns([self.first])
        if self.adds_up(kinds):
            own = [name for name in key if name not in self.columns]
            numbers = KeySet.of(rows, own).inverse if own else np.zeros(rows.num_rows, np.int64)
            parts = spread(numbers, first, last, self.slide_us, Accumulated.of(rows, kinds))
            group, start = parts.group, parts.start
            out = rows.select(list(key)).take(pa.array(group))
            for name, values in partial_columns(parts).items():
                out = out.append_column(name, pa.array(values))
        else:
            group, start = repeated(first, last, self.slide_us)
            out = rows.take(pa.array(group))
        moved = start - last[group]
        for name, at in shifted.items():
            field = out.schema.field(name)
            values = pa.array(at[group] + moved).cast(field.type)
            out = out.set_column(out.column_names.index(name), field, values)
        return out


@dataclass(frozen=True)
class Hop(CarriesOrigin, AppliesByBatch):
    """Windows of `size_us` microseconds that start every `slide_us`: they overlap, or leave gaps.

    A row in a gap is in no window; such rows are counted.

    With `latest` a row is assigned only to the latest of its windows: it is cheaper to spread groups over
    the windows than single rows (`Spread`).  The size must be a multiple of the slide, so that all
    rows with the same latest window have the same windows.
    """

    time: str
    size_us: int
    slide_us: int
    offset_us: int = 0
    latest: bool = False

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        _check_positive("size", self.size_us, step)
        _check_positive("slide", self.slide_us, step)
        key = None if shape.key is None else (*shape.key, START)
        return _bind(shape, self.time, key, step, self.size_us, self.slide_us, self.offset_us)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed - {START, END} | {self.time},)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        return _assign(binding, inputs, self.time, self.size_us, self.slide_us, self.offset_us, self.latest)

    @property
    def spread(self) -> Spread | None:
        """How groups of rows in their latest window are repeated in all their windows, if possible."""
        count, rest = divmod(self.size_us, self.slide_us)
        return Spread((START, END), self.slide_us, count) if rest == 0 else None


def _check_positive(what: str, value: int, step: str) -> None:
    if value < 1:
        raise InvalidError(f"the {what} of a window must be positive", detail=f"got {value} us", step=step)
    if value > LIMIT_US:
        raise InvalidError(
            f"the {what} of a window is longer than the calendar", detail=f"got {value} us", step=step
        )


def _bind(
    shape: Shape, time: str, key: tuple[str, ...] | None, step: str, size: int, slide: int, offset: int
) -> Binding:
    kind = check_time(shape.schema, time, step)
    taken = [name for name in (START, END) if name in shape.schema.names]
    if taken:
        raise InvalidError(
            f"the input already has a column {taken[0]!r}",
            hint="rename it in a map before this step",
            step=step,
        )
    schema = shape.schema.append(pa.field(START, kind)).append(pa.field(END, kind))
    bounded = shape.time == time and shape.watermark is not None
    given = Shape(
        schema,
        shape.append_only,
        key,
        END if bounded else None,
        shape.watermark if bounded else None,
        (*shape.bounds, *_ends(shape, time, step, size, slide, offset)),
    )
    return Binding(given, (HERE,))


def _ends(shape: Shape, time: str, step: str, size: int, slide: int, offset: int) -> tuple[Bound, ...]:
    """The end of a window is after the times in it, and its start a fixed time before that."""
    found = next((b for b in shape.bounds if b.column == time), None)
    if found is None:
        return ()
    width = math.gcd(size, slide)
    end = Bound(END, found.marks, width, offset % width == 0, "open", step)
    return (end, replace(end, column=START, marks=found.moved(size)))


def _assign(
    binding: Binding, inputs: Inputs, time: str, size: int, slide: int, offset: int, latest: bool = False
) -> StepResult:
    (delta,) = inputs
    if delta is None:
        return StepResult()
    at, usable = micros(delta.column(time))
    delta, errors = without_time(delta, usable, time)
    at = at if errors is None else at[usable]
    last = _latest(at, slide, offset)
    one = slide == size
    count = None if one else np.maximum((size - (at - last) + slide - 1) // slide, 0)
    first = last if count is None else last - (count - 1) * slide
    delta, near, distant = without_distant(delta, at, first, last + size, time)
    if near is not None:
        last, count = last[near], None if count is None else count[near]
        errors = join_errors(errors, distant)
    if count is None or latest:
        return StepResult(_with_window(binding, delta, last, size), errors=errors)
    outside = int(np.count_nonzero(count == 0)) if slide > size else 0
    row = np.repeat(np.arange(len(count)), count)
    back = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    out = _with_window(binding, delta.take(pa.array(row)), last[row] - back * slide, size)
    return StepResult(out, errors=errors, counts={NO_WINDOW: outside} if outside else {})


def _latest(at: Ints, slide: int, offset: int) -> Ints:
    """The start of the latest window that contains each time; often one window contains a full batch."""
    ends = np.array([at.min(), at.max()]) if len(at) else at
    of_ends = (ends - offset) // slide * slide + offset
    if len(at) and of_ends[0] == of_ends[1]:
        return np.full(len(at), of_ends[0])
    return (at - offset) // slide * slide + offset


def _with_window(binding: Binding, rows: pa.Table, start: Ints, size: int) -> pa.Table:
    """The rows with their window columns, placed before the hidden columns."""
    kind = binding.shape.schema.field(START).type
    places = [i for i, name in enumerate(rows.column_names) if not name.startswith("_")]
    end = max(places, default=-1) + 1
    out = rows.add_column(end, pa.field(START, kind), pa.array(start).cast(kind))
    return out.add_column(end + 1, pa.field(END, kind), pa.array(start + size).cast(kind))
