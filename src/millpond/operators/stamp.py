"""Stamp: adds the time of the epoch that read a row to the row.

Linear over its input, but not a function of the row alone: a retraction would get
another time than its row, so the input must never retract.  The row keeps this time
in all later steps.  The output cannot be recomputed, only stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import AppliesByBatch, CarriesOrigin, DependsOnArrival

INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Stamp(CarriesOrigin, AppliesByBatch, DependsOnArrival):
    """`column` is added, or replaces the column of that name; `owner` distinguishes equal steps.

    >>> Stamp("seen", "clicks").column
    'seen'
    """

    column: str
    owner: str

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        if not shape.append_only:
            raise InvalidError(
                "rows that can be retracted cannot get the time at which they came",
                detail="a retraction would get another time than its row",
                hint="take it on an append-only input",
                step=step,
            )
        if shape.key is not None and self.column in shape.key:
            raise InvalidError(f"column {self.column!r} is part of a key", step=step)
        index = shape.schema.get_field_index(self.column)
        field = pa.field(self.column, INSTANT)
        schema = shape.schema.append(field) if index < 0 else shape.schema.set(index, field)
        bounded = shape.time is not None and shape.time != self.column
        bounds = tuple(b for b in shape.bounds if b.column != self.column)
        output = Shape(
            schema,
            True,
            shape.key,
            shape.time if bounded else None,
            shape.watermark if bounded else None,
            bounds,
        )
        return Binding(output, (HERE,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed - {self.column},)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        values = pa.array(np.full(delta.num_rows, ctx.now_us, np.int64)).cast(INSTANT)
        if self.column in delta.column_names:
            delta = delta.drop_columns([self.column])
        return StepResult(delta.append_column(pa.field(self.column, INSTANT), values))
