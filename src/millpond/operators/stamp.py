"""Stamp: the time of the epoch in which a row came, put into the row.

Linear in what comes, but no function of the row alone: a retraction would get
another time than its row, so the input must never retract.  The time stays with
the row from here on.  What the step gave cannot be computed again, only kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.operators.operator import HERE, Binding, Context, Inputs, Result, Shape

INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Stamp:
    """`column` is added, or takes the place of one of that name; `owner` tells equal steps apart.

    >>> Stamp("seen", "clicks").column
    'seen'
    """

    column: str
    owner: str

    canonical: ClassVar[bool] = True
    carries_origin: ClassVar[bool] = True
    by_piece: ClassVar[bool] = True  # an epoch has one time
    once: ClassVar[bool] = True  # depends on when rows came

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        if not shape.append_only:
            raise InvalidError(
                "rows that can be taken back cannot get the time at which they came",
                detail="a retraction would get another time than its row",
                hint="take it on an append-only input",
                step=step,
            )
        if shape.key is not None and self.column in shape.key:
            raise InvalidError(f"column {self.column!r} is part of a key", step=step)
        place = shape.schema.get_field_index(self.column)
        field = pa.field(self.column, INSTANT)
        schema = shape.schema.append(field) if place < 0 else shape.schema.set(place, field)
        bounded = shape.time is not None and shape.time != self.column
        bounds = tuple(b for b in shape.bounds if b.column != self.column)
        given = Shape(
            schema,
            True,
            shape.key,
            shape.time if bounded else None,
            shape.watermark if bounded else None,
            bounds,
        )
        return Binding(given, (HERE,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed - {self.column},)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        (delta,) = inputs
        if delta is None:
            return Result()
        values = pa.array(np.full(delta.num_rows, ctx.now_us, np.int64)).cast(INSTANT)
        if self.column in delta.column_names:
            delta = delta.drop_columns([self.column])
        return Result(delta.append_column(pa.field(self.column, INSTANT), values))
