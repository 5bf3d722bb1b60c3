"""ExcludeLate: drops rows that a watermark classified as late, when a backfill reads them again.

Law: the output is the input minus the rows that the watermark stored as late and
minus those without a usable time, as multisets.  Which of two equal rows was the
late one makes no difference.  So rows that were late once never return, and
it does not matter how the input was split into epochs (laws 1 and 8).

The late rows must arrive before, or together with, the input rows that contain them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from millpond import delta as deltas
from millpond.kernels.event_time import micros, without_time
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec


@dataclass(frozen=True)
class ExcludeLate:
    """Inputs: that of the watermark, and its late rows.  `shape` is the shape of the watermark's output."""

    time: str
    shape: Shape

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        schema = stored(self.shape.schema)
        key = tuple(f.name for f in schema if not pa.types.is_nested(f.type))
        owed = TableSpec(f"{step}/owed", schema, key=key, rule="weights")
        return Binding(self.shape, (by_key(*key), by_key(*key)), (owed,))

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names),) * 2

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        rows, late = inputs
        (spec,) = binding.tables
        names = spec.schema.names
        fresh = None if late is None else deltas.consolidate(_plain(late, spec))
        if rows is None:
            return StepResult() if fresh is None else StepResult(changes=(Change(spec.name, fresh),))
        _, usable = micros(rows.column(self.time))
        rows, _ = without_time(rows, usable, self.time)
        rows = deltas.consolidate(_plain(rows, spec))
        stored = ctx.table(spec.name).lookup(KeySet.of(rows, spec.key)).table.select([*names, deltas.WEIGHT])
        owed = stored if fresh is None else deltas.consolidate(deltas.concat([stored, fresh]))
        if not owed.num_rows:
            return StepResult(rows if rows.num_rows else None)
        less = deltas.consolidate(deltas.concat([rows, deltas.negate(owed)]))
        out = less.filter(pa.array(deltas.weights(less) > 0))
        left = deltas.consolidate(deltas.concat([out, deltas.negate(less)]))  # still to be subtracted
        paid = deltas.consolidate(deltas.concat([left, deltas.negate(stored)]))
        return StepResult(out if out.num_rows else None, (Change(spec.name, paid),) if paid.num_rows else ())


def _plain(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """The columns of the table and a weight, without other columns."""
    return deltas.with_weights(rows.select(spec.schema.names).cast(spec.schema), deltas.weights(rows))
