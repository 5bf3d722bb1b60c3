"""Bag: a table without a key, at the boundary of the plan.

Law: no row's weight ever falls below zero: a retraction of a missing row is
refused as an error row, so weights inside the plan are never negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import delta as deltas
from millpond.kernels.expression_kernel import error_rows
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec


@dataclass(frozen=True)
class Bag:
    """`sequence` names an input column that does not belong to the row, if there is one.

    Rows are placed by their plain columns, or by `key`: the plain columns at the time the table was created.
    """

    sequence: str | None = None
    key: tuple[str, ...] | None = None

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = stored(pa.schema([f for f in shape.schema if f.name != self.sequence]))
        key = self.key or tuple(f.name for f in schema if not pa.types.is_nested(f.type))
        table = TableSpec(f"{step}/rows", schema, key=key, rule="weights")
        return Binding(
            Shape(schema, append_only=False), (by_key(*key),), (table,), view=table.name, placed_by=key
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        schema = binding.shape.schema
        rows = deltas.with_weights(delta.select(schema.names).cast(schema), deltas.weights(delta))
        rows = deltas.consolidate(rows)
        if rows.num_rows == 0:
            return StepResult()
        weights = deltas.weights(rows)
        errors = None
        if (weights < 0).any():
            rows, errors = self._refuse(ctx, binding, rows, weights)
        return StepResult(rows, (Change(binding.tables[0].name, rows),), errors)

    def _refuse(
        self, ctx: Context, binding: Binding, rows: pa.Table, weights: npt.NDArray[np.int64]
    ) -> tuple[pa.Table, pa.Table | None]:
        """Retract no more than exists; the rest is an error, counted with its weight."""
        spec = binding.tables[0]
        down = np.flatnonzero(weights < 0)
        asked = rows.take(pa.array(down))
        stored = ctx.table(spec.name).lookup(KeySet.of(asked, spec.key)).table
        # |weights| to retract minus the stored weights, per identical row
        owed = deltas.consolidate(deltas.concat([asked.select(stored.column_names), stored]))
        short = owed.filter(pa.array(deltas.weights(owed) < 0))
        if short.num_rows == 0:
            return rows, None
        fitting = deltas.consolidate(deltas.concat([rows.select(stored.column_names), deltas.negate(short)]))
        reasons = ["retraction meets no row"] * short.num_rows
        return fitting, error_rows(deltas.negate(short), reasons)
