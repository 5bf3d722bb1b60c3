"""WithinCalendar: the rows whose session ends within the year 9999; others become error rows (law 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from millpond.kernels.event_time import check_time, micros, without_distant
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import AppliesByBatch, CarriesOrigin, NamesColumnsRead


@dataclass(frozen=True)
class WithinCalendar(CarriesOrigin, AppliesByBatch, NamesColumnsRead):
    time: str
    gap_us: int  # of sessions: how long after its last row one ends

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        check_time(shape.schema, self.time, step)
        return Binding(shape, (HERE,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | {self.time},)

    def looks_at(self, binding: Binding, index: int) -> frozenset[str]:
        return frozenset({self.time})

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        at, usable = micros(delta.column(self.time))
        at = at if usable.all() else np.where(usable, at, 0)
        rows, _, errors = without_distant(delta, at, at, at + self.gap_us, self.time)
        return StepResult(rows if rows.num_rows else None, errors=errors)
