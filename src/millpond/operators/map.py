"""Map: a complete projection by SQL expressions.

Linear: every output row is a function of one input row and has its weight,
so retractions need no state.  A row whose expression fails is an error row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from millpond.column_names import check_names
from millpond.delta import ORIGIN
from millpond.kernels.expression_kernel import project
from millpond.kernels.expressions import bind
from millpond.kernels.python_function import CallsPythonFunctions
from millpond.operators.operator import HERE, Binding, Context, Inputs, Shape, StepResult
from millpond.operators.traits import AppliesByBatch, CarriesOrigin, RenamesColumns


@dataclass(frozen=True)
class Map(CarriesOrigin, AppliesByBatch, RenamesColumns, CallsPythonFunctions):
    """Output columns as (name, SQL expression), in this order; there are no others.

    >>> Map((("id", "id"), ("total", "price * quantity"))).columns[1]
    ('total', 'price * quantity')
    """

    columns: tuple[tuple[str, str], ...]
    functions: tuple[Any, ...] = ()  # Python functions that the SQL calls

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        check_names([name for name, _ in self.columns], step)
        bound = tuple(
            (name, bind(shape.schema, sql, name=name, append_only=shape.append_only, step=step))
            for name, sql in self.columns
        )
        renamed = {e.column: name for name, e in reversed(bound) if e.column is not None}
        key = None
        if shape.key is not None and renamed.keys() >= set(shape.key):
            key = tuple(renamed[column] for column in shape.key)
        time = renamed.get(shape.time) if shape.time is not None else None
        watermark = shape.watermark if time is not None else None
        schema = pa.schema([(name, e.type) for name, e in bound])
        bounds = tuple(
            replace(b, column=name) for name, e in bound for b in shape.bounds if e.column == b.column
        )
        return Binding(Shape(schema, shape.append_only, key, time, watermark, bounds), (HERE,), extra=bound)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        columns = frozenset(column for name, e in binding.extra if name in needed for column in e.needs)
        return (columns | (needed & {ORIGIN}),)

    def looks_at(self, binding: Binding, index: int) -> frozenset[str]:
        return frozenset(column for _, e in binding.extra if e.column is None for column in e.needs)

    def passes(self, binding: Binding) -> dict[str, str]:
        """The columns that are only renamed, by their new names."""
        return {name: e.column for name, e in binding.extra if e.column is not None}

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        # A plan that needs only some output columns provides only the input columns they read.
        names = set(delta.column_names)
        projected = project(delta, [(name, e) for name, e in binding.extra if names.issuperset(e.needs)])
        return StepResult(projected.rows, errors=projected.errors)
