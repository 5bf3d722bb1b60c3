"""Upsert: a table with a primary key, at the boundary.

Law: at most one row per key; a row put again replaces the old one (the old is
retracted), and a delete of a key that is not there is refused as an error row.
Within an epoch the last change of a key, by sequence, decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond import delta as deltas
from millpond.errors import InvalidError
from millpond.identity import equal_rows, one_chunk
from millpond.operators.operator import (
    ERROR_SCHEMA,
    Binding,
    Change,
    Context,
    Inputs,
    Result,
    Shape,
    by_key,
)
from millpond.state.table import KeySet
from millpond.state.table_spec import TableSpec


@dataclass(frozen=True)
class Upsert:
    key: tuple[str, ...]
    sequence: str

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = pa.schema([f for f in shape.schema if f.name != self.sequence])
        missing = [k for k in self.key if k not in schema.names]
        if missing or not self.key:
            raise InvalidError(
                f"the key of a table must be some of its columns, got {self.key!r}",
                detail=f"columns are {', '.join(schema.names)}",
                step=step,
            )
        table = TableSpec(f"{step}/rows", schema, key=self.key)
        return Binding(
            Shape(schema, append_only=False, key=self.key),
            (by_key(*self.key),),
            (table,),
            view=table.name,
            placed_by=self.key,
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset([*binding.shape.schema.names, self.sequence]),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> Result:
        (delta,) = inputs
        if delta is None:
            return Result()
        names = binding.shape.schema.names
        keys = KeySet.of(delta, self.key)
        sequence = one_chunk(delta.column(self.sequence)).to_numpy()
        order = np.lexsort((sequence, keys.inverse))
        place = keys.inverse[order]
        last = order[np.flatnonzero(np.concatenate((place[1:] != place[:-1], [True])))]
        rows = delta.take(pa.array(last))
        puts = deltas.weights(rows) > 0
        found, old = ctx.table(binding.tables[0].name).lookup_one(keys)
        lost = ~puts & ~found
        same = equal_rows(
            [one_chunk(old.column(n)) for n in names], [one_chunk(rows.column(n)) for n in names], len(keys)
        )
        moved = ~lost & ~(same & found & puts)
        changed = rows.select(names).filter(pa.array(moved))
        weight = puts[moved].astype(np.int64)
        gone = old.select(names).filter(pa.array(found & moved))
        come = rows.select(names).filter(pa.array(puts & moved))
        out = deltas.concat(
            [
                deltas.with_weights(gone, np.full(gone.num_rows, -1, np.int64)),
                deltas.with_weights(come, np.ones(come.num_rows, np.int64)),
            ]
        )
        errors = None
        if lost.any():
            bad = [str({k: r[k] for k in self.key}) for r in rows.filter(pa.array(lost)).to_pylist()]
            errors = pa.table(
                [bad, ["delete meets no row"] * len(bad), [1] * len(bad)], schema=ERROR_SCHEMA
            )
        change = Change(binding.tables[0].name, deltas.with_weights(changed, weight))
        return Result(out, (change,), errors)
