"""AssignSlices: the slice of each row, which all its windows share.

Linear, as `AssignWindows`, but a row is not repeated: a later step computes windows from slices.  Lateness is
judged per window there too: a row is late for the windows that the watermark has closed, and is left out if
those are all its windows.  Each late pair of row and window is counted (law 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.kernels.bounds import Bound
from millpond.kernels.event_time import check_time, micros, without_distant, without_time
from millpond.kernels.expression_kernel import join_errors
from millpond.kernels.slices import Slicing, slicing_of
from millpond.kernels.window_assigners import WindowAssigner
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import AppliesByBatch, CarriesOrigin

SLICE = "window_slice"  # the start of the slice, in microseconds


@dataclass(frozen=True)
class AssignSlices(CarriesOrigin, AppliesByBatch):
    time: str
    windows: WindowAssigner
    watermark: Bound | None = None  # of the time column, if windows judge which rows are late
    reports: bool = True  # are rows without a time error rows of this step, or does another report them?

    canonical: ClassVar[bool] = True

    @property
    def _slicing(self) -> Slicing:
        slicing = slicing_of(self.windows)
        assert slicing is not None
        return slicing

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        check_time(shape.schema, self.time, step)
        if SLICE in shape.schema.names:
            raise InvalidError(
                f"the input already has a column {SLICE!r}",
                hint="rename it with select() before window()",
                step=step,
            )
        schema = shape.schema.append(pa.field(SLICE, pa.int64()))
        return Binding(Shape(schema, shape.append_only), (HERE,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed - {SLICE} | {self.time},)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        at, usable = micros(delta.column(self.time))
        delta, errors = without_time(delta, usable, self.time)
        if errors is not None:
            at = at[usable]
            errors = errors if self.reports else None
        slicing = self._slicing
        start = slicing.slice_of(at)
        first, last = slicing.first(start), slicing.last(start)
        delta, in_calendar, distant = without_distant(delta, at, slicing.start(first), last, self.time)
        if in_calendar is not None:
            errors = join_errors(errors, distant)
            start, first, last = start[in_calendar], first[in_calendar], last[in_calendar]
        bound = None if self.watermark is None else self.watermark.limit(ctx.watermark_before)
        counts = {}
        if bound is not None and len(first) and int(first.min()) <= bound:
            closed = np.minimum(slicing.closed(bound), last)
            late = np.maximum(closed - first + slicing.step_us, 0) // slicing.step_us
            counts = {"late": int(late.sum())}
            taken = last > bound
            delta, start = delta.filter(pa.array(taken)), start[taken]
        out = _with_slice(binding, delta, start)
        return StepResult(out if out.num_rows else None, errors=errors, counts=counts)


def _with_slice(binding: Binding, rows: pa.Table, start: np.ndarray) -> pa.Table:
    """The rows with their slice in front of the hidden columns."""
    names = binding.shape.schema.names
    end = max((i for i, name in enumerate(rows.column_names) if name in names), default=-1) + 1
    return rows.add_column(end, pa.field(SLICE, pa.int64()), pa.array(start, pa.int64()))
