"""AssignWindows: the windows of each row, and which of them come too late.

Linear: a row is repeated, with its weight, once for every window that contains its time.  Lateness is
judged per window: a window takes rows until the watermark has passed its end by more than the allowed
lateness.  With `late` the step returns the pairs of row and window that came after that, and otherwise
those that came in time, so that each pair is in exactly one of the two (law 8).

The rows may come from in front of the watermark step: rows behind the watermark whose window is still
open are accepted.  Because later windows are refused, the end of a window is a bound (`kernels.bounds`).

With `latest` a row is not repeated: it gets its latest window and the start of the first one that takes it,
and an aggregate spreads groups of such rows over their windows (`window.Spread`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.delta import ORIGIN
from millpond.errors import InvalidError
from millpond.kernels.bounds import Bound
from millpond.kernels.custom_windows import CustomWindows
from millpond.kernels.event_time import (
    FIRST_US,
    LAST_US,
    Ints,
    beyond_calendar,
    check_time,
    micros,
    without_distant,
    without_time,
)
from millpond.kernels.expression_kernel import error_rows, join_errors
from millpond.kernels.window_assigners import Assigned, Sliding, WindowAssigner
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import AppliesByBatch, CarriesOrigin
from millpond.operators.window import END, NO_WINDOW, START, Spread

FIRST = "window_first"  # the start of the first window that takes a row


@dataclass(frozen=True)
class AssignWindows(CarriesOrigin, AppliesByBatch):
    time: str
    windows: WindowAssigner
    watermark: Bound | None = None  # of the time column: it closes windows
    after_us: int = 0  # a window is closed when the watermark is this far past its end
    late: bool = False  # the pairs that came too late, instead of the others
    reports: bool = True  # are rows without a time error rows of this step, or does another report them?
    latest: bool = False  # one row for all windows of each row; of windows that overlap

    canonical: ClassVar[bool] = True

    @property
    def _columns(self) -> tuple[str, ...]:
        return (START, END, FIRST) if self.latest else (START, END)

    @property
    def spread(self) -> Spread:
        """How groups of rows in their latest window are repeated in all windows that take them."""
        assert isinstance(self.windows, Sliding)
        count = -(-self.windows.size_us // self.windows.slide_us)
        return Spread((START, END), self.windows.slide_us, count, FIRST)

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        kind = check_time(shape.schema, self.time, step)
        if taken := [name for name in self._columns if name in shape.schema.names]:
            raise InvalidError(
                f"the input already has a column {taken[0]!r}",
                hint="rename it with select() before window()",
                step=step,
            )
        own = [f for f in shape.schema if f.name not in self.windows.takes]
        schema = pa.schema([*own, *(pa.field(name, kind) for name in self._columns)])
        given = Shape(schema, shape.append_only, bounds=() if self.late else self._bounds(step))
        marks = () if self.watermark is None else self.watermark.marks
        if not self.late and self.after_us <= 1 and len(marks) == 1 and marks[0][1] == 0:
            # The end of a window is not before the watermark, so it is the event time of what follows.
            given = replace(given, time=END, watermark=marks[0][0])
        return Binding(given, (HERE,))

    def _bounds(self, step: str) -> tuple[Bound, ...]:
        windows = self.windows
        if self.watermark is None or not windows.ends:
            return ()
        # Later ends are above the limit.  Off the grid a bound says "not below": one microsecond more.
        marks = self.watermark.moved(self.after_us - (0 if windows.on_grid else 1))
        end = Bound(END, marks, windows.width_us, windows.on_grid, "open", by=step)
        span = windows.span_us
        return (end,) if span is None else (end, replace(end, column=START, marks=end.moved(span)))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        reads = self.windows.reads
        if reads is None:
            return (
                frozenset(n for n in binding.shape.schema.names if n not in (START, END)) | needed & {ORIGIN},
            )
        return (needed - {*self._columns} | {self.time, *reads},)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        at, usable = micros(delta.column(self.time))
        delta, errors = without_time(delta, usable, self.time)
        if errors is not None:
            at = at[usable]
            errors = errors if self.reports else None
        bound = None if self.watermark is None else self.watermark.limit(ctx.watermark_before)
        if self.latest:
            return self._in_latest(binding, delta, at, bound, errors)
        if self.late and not isinstance(self.windows, CustomWindows):
            # A window ends after its rows: a row at the limit or later is late for none of them.
            behind = np.zeros(len(at), np.bool_) if bound is None else at < bound - self.after_us
            if not behind.any():
                return StepResult()
            delta, at = delta.filter(pa.array(behind)), at[behind]
        pairs = self.windows.assign(at, delta)
        if pairs.failed:
            bad = delta.take(pa.array(list(pairs.failed)))
            errors = join_errors(errors, error_rows(bad, list(pairs.failed.values())))
        counts: dict[str, int] = {}
        if not self.late and self.windows.leaves_gaps:
            outside = delta.num_rows - len(np.unique(pairs.row)) - len(pairs.failed)
            counts = {NO_WINDOW: outside} if outside else {}
        beyond = (pairs.start < FIRST_US) | (pairs.end > LAST_US)
        if beyond.any():
            bad = np.unique(pairs.row[beyond])
            told = error_rows(delta.take(pa.array(bad)), [beyond_calendar(self.time)] * len(bad))
            errors = join_errors(errors, told)
            pairs = pairs.some(~np.isin(pairs.row, bad))
        over = np.zeros(len(pairs.row), np.bool_) if bound is None else pairs.end <= bound - self.after_us
        chosen = over if self.late else ~over
        if not self.late and over.any():
            counts["late"] = int(np.count_nonzero(over))
        if not chosen.all():
            pairs = pairs.some(chosen)
        if taken := [n for n in self.windows.takes if n in delta.column_names]:
            delta = delta.drop_columns(taken)
        out = with_windows(binding.shape.schema, delta, pairs)
        return StepResult(out if out.num_rows else None, errors=None if self.late else errors, counts=counts)

    def _in_latest(
        self, binding: Binding, delta: pa.Table, at: Ints, bound: int | None, errors: pa.Table | None
    ) -> StepResult:
        """Rows in their latest window, and which others take them, unless all are closed."""
        windows = self.windows
        assert isinstance(windows, Sliding)
        size, slide = windows.size_us, windows.slide_us
        last = (at - windows.offset_us) // slide * slide + windows.offset_us
        first = last - (size - 1 - (at - last)) // slide * slide
        delta, near, distant = without_distant(delta, at, first, last + size, self.time)
        if near is not None:
            errors = join_errors(errors, distant)
            first, last = first[near], last[near]
        counts = {}
        if bound is not None and len(first) and int(first.min()) + size <= bound - self.after_us:
            closed = np.clip((bound - self.after_us - size - first) // slide + 1, 0, None)
            closed = np.minimum(closed, (last - first) // slide + 1)
            counts = {"late": int(closed.sum())}
            first = first + closed * slide
            taken = first <= last
            delta, first, last = delta.filter(pa.array(taken)), first[taken], last[taken]
        out = with_windows(binding.shape.schema, delta, Assigned(np.arange(len(last)), last, last + size))
        kind = binding.shape.schema.field(FIRST).type
        out = out.add_column(out.column_names.index(END) + 1, FIRST, pa.array(first).cast(kind))
        return StepResult(out if out.num_rows else None, errors=errors, counts=counts)


def with_windows(schema: pa.Schema, rows: pa.Table, pairs: Assigned) -> pa.Table:
    """A row for each pair, with the columns of its window in front of the hidden columns."""
    if len(pairs.row) != rows.num_rows or not np.array_equal(pairs.row, np.arange(rows.num_rows)):
        rows = rows.take(pa.array(pairs.row))
    kind = schema.field(START).type
    places = [i for i, name in enumerate(rows.column_names) if name in schema.names]
    end = max(places, default=-1) + 1
    out = rows.add_column(end, pa.field(START, kind), pa.array(pairs.start).cast(kind))
    return out.add_column(end + 1, pa.field(END, kind), pa.array(pairs.end).cast(kind))
