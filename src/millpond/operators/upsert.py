"""Upsert: a table with a primary key, at the boundary of the plan.

Law: at most one row per key.  A put of an existing key replaces the old row (which
is retracted), and a delete of a missing key is refused as an error row.
Changes apply one after the other, by sequence: how they are split into epochs
changes neither the rows nor the errors.
With `keeps_first` the table is append-only: the first row of a key stays, and a put of
an existing key is refused as an error row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import delta as deltas
from millpond.errors import InvalidError
from millpond.identity import equal_rows, one_chunk
from millpond.kernels.expression_kernel import error_rows
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]

REPEATED = "a row with this key is there already, and the table is append-only"


@dataclass(frozen=True)
class Upsert:
    key: tuple[str, ...]
    sequence: str
    keeps_first: bool = False

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = stored(pa.schema([f for f in shape.schema if f.name != self.sequence]))
        missing = [k for k in self.key if k not in schema.names]
        if missing or not self.key:
            raise InvalidError(
                f"the key of a table must be some of its columns, got {self.key!r}",
                detail=f"columns are {', '.join(schema.names)}",
                step=step,
            )
        table = TableSpec(f"{step}/rows", schema, key=self.key)
        return Binding(
            Shape(schema, append_only=self.keeps_first, key=self.key),
            (by_key(*self.key),),
            (table,),
            view=table.name,
            placed_by=self.key,
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset([*binding.shape.schema.names, self.sequence]),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        if delta is None:
            return StepResult()
        names = binding.shape.schema.names
        keys = KeySet.of(delta, self.key)
        sequence = one_chunk(delta.column(self.sequence)).to_numpy()
        order = np.lexsort((sequence, keys.inverse))
        positions = keys.inverse[order]
        put = deltas.weights(delta)[order] > 0
        is_stored, old = ctx.table(binding.tables[0].name).lookup_one(keys)
        if self.keeps_first:
            return self._first(binding, delta, order, positions, is_stored)
        later = positions[1:] == positions[:-1]
        there = np.concatenate(([False], put[:-1]))  # does the key exist when a change arrives?
        first = np.flatnonzero(np.concatenate(([True], ~later)))
        there[first] = is_stored
        last = np.flatnonzero(np.concatenate((~later, [True])))
        rows, puts = delta.select(names).cast(binding.shape.schema).take(pa.array(order[last])), put[last]
        same = equal_rows(
            [one_chunk(old.column(n)) for n in names], [one_chunk(rows.column(n)) for n in names], len(keys)
        )
        moved = np.where(puts, ~(same & is_stored), is_stored)
        changed = rows.select(names).filter(pa.array(moved))
        weight = puts[moved].astype(np.int64)
        gone = old.select(names).filter(pa.array(is_stored & moved))
        come = rows.select(names).filter(pa.array(puts & moved))
        out = deltas.concat(
            [
                deltas.with_weights(gone, np.full(gone.num_rows, -1, np.int64)),
                deltas.with_weights(come, np.ones(come.num_rows, np.int64)),
            ]
        )
        errors = None
        lost = order[np.flatnonzero(~put & ~there)]
        if len(lost):
            bad = delta.select(list(self.key)).take(pa.array(lost))
            errors = error_rows(bad, ["delete meets no row"] * len(lost))
        change = Change(binding.tables[0].name, deltas.with_weights(changed, weight))
        return StepResult(out, (change,), errors)

    def _first(
        self, binding: Binding, delta: pa.Table, order: Ints, positions: Ints, is_found: npt.NDArray[np.bool_]
    ) -> StepResult:
        """The first row of each new key; the others are error rows."""
        fresh = np.concatenate(([True], positions[1:] != positions[:-1])) & ~is_found[positions]
        names = binding.shape.schema.names
        rows = delta.select(names).cast(binding.shape.schema)
        come = deltas.with_weights(rows.take(pa.array(order[fresh])), np.ones(int(fresh.sum()), np.int64))
        errors = None
        if not fresh.all():
            bad = rows.take(pa.array(order[~fresh]))
            errors = error_rows(bad, [REPEATED] * bad.num_rows)
        if not come.num_rows:
            return StepResult(errors=errors)
        return StepResult(come, (Change(binding.tables[0].name, come),), errors)
