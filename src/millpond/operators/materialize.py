"""Materialize: a view whose rows no keyed operator already holds.

A multiset of rows (rule *weights*), written where the rows are: sums need no
placement, so a view over a plain stream costs no exchange.  The key only
serves lookups.  What is built on the view gets its rows on: a delta is linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from millpond import delta as deltas
from millpond.operators.operator import HERE, Binding, Change, Context, Inputs, Result, Shape
from millpond.operators.watermark import stored
from millpond.state.retention import ERRORS
from millpond.state.table_spec import TableSpec

ERRORS_SPEC = TableSpec(
    ERRORS,
    pa.schema([("step", pa.string()), ("row", pa.string()), ("reason", pa.string())]),
    key=("step",),
    rule="weights",
)


@dataclass(frozen=True)
class Materialize:
    """The rows of one input, kept as they are, to be looked up by `key`."""

    key: tuple[str, ...]

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        table = TableSpec(f"{step}/rows", stored(shape.schema), key=self.key, rule="weights")
        return Binding(shape, (HERE,), (table,), view=table.name)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        (delta,) = inputs
        if delta is None:
            return Result()
        if deltas.HASH in delta.column_names:  # of another key than the table's
            delta = delta.drop_columns([deltas.HASH])
        rows = delta if binding.shape.append_only else deltas.consolidate(delta)
        return Result(rows if ctx.wanted else None, (Change(binding.tables[0].name, rows),))
