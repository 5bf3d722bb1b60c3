"""Materialize: stores a view whose rows no keyed operator already stores.

A multiset of rows (rule *weights*), written where the rows are: sums need no
placement, so a view over a plain stream needs no exchange.  The key only
serves lookups.  Steps that read the view receive the input delta: a delta is linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millpond import delta as deltas
from millpond.operators.operator import HERE, Binding, Change, Context, Inputs, Shape, StepResult
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table_spec import TableSpec


@dataclass(frozen=True)
class Materialize:
    """The rows of one input, stored unchanged, for lookups by `key`."""

    key: tuple[str, ...]

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        table = TableSpec(f"{step}/rows", stored(shape.schema), key=self.key, rule="weights")
        return Binding(shape, (HERE,), (table,), view=table.name)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        if deltas.HASH in delta.column_names:  # of another key than the table's
            delta = delta.drop_columns([deltas.HASH])
        rows = delta if binding.shape.append_only else deltas.consolidate(delta)
        return StepResult(rows if ctx.output_is_read else None, (Change(binding.tables[0].name, rows),))
