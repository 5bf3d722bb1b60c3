"""OnTime: what a watermark let through, found again long after.

Law: the output is the input less the rows that the watermark kept as late and
less those without a usable time, as multisets.  Which of two equal rows was the
late one makes no difference.  So rows that were late once never come back, and
nobody has to know how the input was cut into epochs (laws 1 and 8).

The late rows must be in before the rows that they are among, or come with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from millpond import delta as deltas
from millpond.operators.event_time import micros, without_time
from millpond.operators.operator import Binding, Change, Context, Inputs, Result, Shape, by_key
from millpond.operators.watermark import stored
from millpond.state.table import KeySet
from millpond.state.table_spec import TableSpec


@dataclass(frozen=True)
class OnTime:
    """Inputs: the watermark's own, and its late rows.  `shape` is what the watermark gives."""

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

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        rows, late = inputs
        (spec,) = binding.tables
        names = spec.schema.names
        fresh = None if late is None else deltas.consolidate(_plain(late, spec))
        if rows is None:
            return Result() if fresh is None else Result(changes=(Change(spec.name, fresh),))
        _, usable = micros(rows.column(self.time))
        rows, _ = without_time(rows, usable, self.time)
        rows = deltas.consolidate(_plain(rows, spec))
        held = ctx.table(spec.name).lookup(KeySet.of(rows, spec.key)).table.select([*names, deltas.WEIGHT])
        owed = held if fresh is None else deltas.consolidate(deltas.concat([held, fresh]))
        if not owed.num_rows:
            return Result(rows if rows.num_rows else None)
        less = deltas.consolidate(deltas.concat([rows, deltas.negate(owed)]))
        out = less.filter(pa.array(deltas.weights(less) > 0))
        left = deltas.consolidate(deltas.concat([out, deltas.negate(less)]))  # is still owed
        paid = deltas.consolidate(deltas.concat([left, deltas.negate(held)]))
        return Result(out if out.num_rows else None, (Change(spec.name, paid),) if paid.num_rows else ())


def _plain(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """The columns of the table and a weight, nothing else."""
    return deltas.with_weights(rows.select(spec.schema.names).cast(spec.schema), deltas.weights(rows))
