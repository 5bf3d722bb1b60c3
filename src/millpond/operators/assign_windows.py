"""AssignWindows: the windows of each row, and which of them come too late.

Linear: a row is repeated, with its weight, once for every window that contains its time.  Lateness is
judged per window: a window takes rows until the watermark has passed its end by more than the allowed
lateness.  With `late` the step returns the pairs of row and window that came after that, and otherwise
those that came in time, so that each pair is in exactly one of the two (law 8).

The rows may come from in front of the watermark step: rows behind the watermark whose window is still
open are accepted.  Because later windows are refused, the end of a window is a bound (`kernels.bounds`).
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
from millpond.kernels.event_time import FIRST_US, LAST_US, beyond_calendar, check_time, micros, without_time
from millpond.kernels.expression_kernel import error_rows, join_errors
from millpond.kernels.window_assigners import Assigned, WindowAssigner
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import AppliesByBatch, CarriesOrigin
from millpond.operators.window import END, NO_WINDOW, START


@dataclass(frozen=True)
class AssignWindows(CarriesOrigin, AppliesByBatch):
    time: str
    windows: WindowAssigner
    watermark: Bound | None = None  # of the time column: it closes windows
    after_us: int = 0  # a window is closed when the watermark is this far past its end
    late: bool = False  # the pairs that came too late, instead of the others
    reports: bool = True  # are rows without a time error rows of this step, or does another report them?

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        kind = check_time(shape.schema, self.time, step)
        if taken := [name for name in (START, END) if name in shape.schema.names]:
            raise InvalidError(
                f"the input already has a column {taken[0]!r}",
                hint="rename it with select() before window()",
                step=step,
            )
        own = [f for f in shape.schema if f.name not in self.windows.takes]
        schema = pa.schema([*own, pa.field(START, kind), pa.field(END, kind)])
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
        return (needed - {START, END} | {self.time, *reads},)

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


def with_windows(schema: pa.Schema, rows: pa.Table, pairs: Assigned) -> pa.Table:
    """A row for each pair, with the columns of its window in front of the hidden columns."""
    if len(pairs.row) != rows.num_rows or not np.array_equal(pairs.row, np.arange(rows.num_rows)):
        rows = rows.take(pa.array(pairs.row))
    kind = schema.field(START).type
    places = [i for i, name in enumerate(rows.column_names) if name in schema.names]
    end = max(places, default=-1) + 1
    out = rows.add_column(end, pa.field(START, kind), pa.array(pairs.start).cast(kind))
    return out.add_column(end + 1, pa.field(END, kind), pa.array(pairs.end).cast(kind))
