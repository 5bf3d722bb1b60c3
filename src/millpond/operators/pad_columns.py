"""PadColumns: rows with the columns of another stream as well, which are NULL, and the number of their side.

Linear.  So rows of two streams with different columns can go through one step together, and be separated
again by their side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.delta import HASH, WEIGHT
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult

SIDE = "_side"


@dataclass(frozen=True)
class PadColumns:
    """`columns` are pairs of an output column and its input column; all others of `schema` are NULL."""

    schema: pa.Schema  # with SIDE as its last column
    columns: tuple[tuple[str, str], ...]
    side: int

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        named = {column: name for name, column in self.columns}
        bounds = tuple(replace(b, column=named[b.column]) for b in shape.bounds if b.column in named)
        return Binding(Shape(self.schema, shape.append_only, bounds=bounds), (HERE,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(column for name, column in self.columns if name in needed),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        sources, count = dict(self.columns), delta.num_rows
        columns = {}
        for field in self.schema:
            if field.name == SIDE:
                columns[SIDE] = pa.array(np.full(count, self.side, np.int8))
            elif field.name not in sources:
                columns[field.name] = pa.nulls(count, field.type)
            elif sources[field.name] in delta.column_names:  # a plan may need only some of them
                columns[field.name] = delta.column(sources[field.name])
        hidden = {name: delta.column(name) for name in (WEIGHT, HASH) if name in delta.column_names}
        return StepResult(pa.table({**columns, **hidden}))
