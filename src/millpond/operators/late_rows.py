"""LateRows: the rows that a watermark rejected as late, as a stream.

Linear, over the input of the watermark: a row is late if its time is below
the watermark that the last epoch committed.  The watermark step uses the same
test to leave it out (law 8).  So each row of the input is on time, or late, or has
no usable time and is an error row of that step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from millpond.kernels.event_time import check_time, micros
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import CarriesOrigin


@dataclass(frozen=True)
class LateRows(CarriesOrigin):
    time: str
    watermark: str  # the step whose watermark decides

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        check_time(shape.schema, self.time, step)
        return Binding(replace(shape, time=None, watermark=None, bounds=()), (HERE,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | {self.time},)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        bound = ctx.watermark_before(self.watermark)
        if delta is None or bound is None:
            return StepResult()
        at, usable = micros(delta.column(self.time))
        late = usable & (at < bound)
        return StepResult(delta.filter(pa.array(late)) if late.any() else None)
