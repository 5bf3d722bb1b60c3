"""LateRows: the rows that a watermark kept out, as a stream.

Linear, over the watermark's own input: a row is late when its time is below
the bound that the last epoch committed, which is the very test by which the
watermark step leaves it out (law 8).  So each row of the input is on time, or
late, or has no usable time and is an error row there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from millpond.operators.event_time import check_time, micros
from millpond.operators.operator import HERE, Binding, Context, Inputs, Result, Shape


@dataclass(frozen=True)
class LateRows:
    time: str
    watermark: str  # the step whose bound it is

    canonical: ClassVar[bool] = True
    carries_origin: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        check_time(shape.schema, self.time, step)
        return Binding(replace(shape, time=None, watermark=None, bounds=()), (HERE,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | {self.time},)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        (delta,) = inputs
        bound = ctx.watermark_before(self.watermark)
        if delta is None or bound is None:
            return Result()
        at, usable = micros(delta.column(self.time))
        late = usable & (at < bound)
        return Result(delta.filter(pa.array(late)) if late.any() else None)
