"""Pick: selects one output of a process step that has several.

Linear.  The step's rows have the columns of all its outputs and a column with
the name of their output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from millpond.delta import WEIGHT
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.process.outputs import OUTPUT, side_column


@dataclass(frozen=True)
class Pick:
    side: str  # "" is the main output
    schema: pa.Schema

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        return Binding(Shape(self.schema, shape.append_only), (HERE,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset([OUTPUT, *(side_column(self.side, n) for n in needed if n in self.schema.names)]),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        mine = delta.filter(pc.equal(delta.column(OUTPUT), self.side))
        columns = {n: side_column(self.side, n) for n in self.schema.names}
        own_columns = {n: mine.column(c) for n, c in columns.items() if c in mine.column_names}
        if WEIGHT in mine.column_names:
            own_columns[WEIGHT] = mine.column(WEIGHT)
        elif not own_columns:
            own_columns[WEIGHT] = pa.array([1] * mine.num_rows, pa.int64())
        return StepResult(pa.table(own_columns))
