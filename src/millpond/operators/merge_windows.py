"""MergeWindows: gives every row the window that contains its own and all that overlap it (sessions).

Law: each row is emitted with its merged window, which is a function of the rows of its key.  A row between
two windows joins them, and a deleted row can split one: rows whose window changes are retracted and emitted
again.  An epoch costs the open windows of the keys that it touches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from millpond.delta import HASH, WEIGHT, concat, consolidate, negate, weights, with_weights
from millpond.identity import one_chunk
from millpond.kernels.bounds import Bound, among, bucketed_by
from millpond.kernels.event_time import micros
from millpond.kernels.window_merging import Merge, merge_by
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import EndsState
from millpond.operators.window import END, START
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet, RowsByKey
from millpond.state.tables.table_spec import TableSpec

OWN_START, OWN_END = "_own_start", "_own_end"


@dataclass(frozen=True)
class MergeWindows(EndsState):
    key: tuple[str, ...]
    until: Bound | None = None  # windows behind it take no more rows
    merge: Merge | None = None  # a user's function, instead of merging where windows overlap

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        schema = stored(shape.schema)
        kind = schema.field(START).type
        full = pa.schema([*schema, pa.field(OWN_START, kind), pa.field(OWN_END, kind)])
        rows = TableSpec(f"{step}/rows", full, self.key, rule="weights", **bucketed_by(self.until))
        output = Shape(schema, append_only=False, bounds=among(shape.bounds, (END,)))
        return Binding(output, (by_key(*self.key),), (rows,), placed_by=self.key)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names),)

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        return self.until is not None and self.until.is_due(binding.tables[0].name, earliest, watermarks)

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        return () if self.until is None else ((binding.tables[0].name, self.until),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        (spec,) = binding.tables
        drops = () if self.until is None else self.until.drops(ctx.watermark, spec)
        if delta is None:
            return StepResult(drops=drops)
        names = [*spec.schema.names, WEIGHT]
        keys = KeySet.of(delta, self.key, one_chunk(delta.column(HASH)).to_numpy())
        stored = open_rows(ctx.table(spec.name).lookup(keys), self.until, ctx).table.select(names)
        fresh = delta.append_column(OWN_START, delta.column(START)).append_column(OWN_END, delta.column(END))
        fresh = with_weights(fresh, weights(delta)).select(names)
        unmerged = stored
        for merged, own in ((START, OWN_START), (END, OWN_END)):
            unmerged = unmerged.set_column(names.index(merged), spec.schema.field(merged), stored.column(own))
        whole = consolidate(concat([unmerged, fresh]))
        change = consolidate(concat([self._merged(whole), negate(stored)]))
        if not change.num_rows:
            return StepResult(drops=drops)
        out = consolidate(change, columns=binding.shape.schema.names)
        return StepResult(out if out.num_rows else None, (Change(spec.name, change),), drops=drops)

    def _merged(self, rows: pa.Table) -> pa.Table:
        """Rows of complete keys with their merged windows, in place of their own."""
        numbers = KeySet.of(rows, self.key).inverse
        start, end = (micros(rows.column(c))[0] for c in (START, END))
        merged = merge_by(self.merge, numbers, start, end)
        for name, values in ((START, merged.start), (END, merged.end)):
            index = rows.column_names.index(name)
            kind = rows.schema.field(name).type
            rows = rows.set_column(index, rows.schema.field(name), pa.array(values[merged.into]).cast(kind))
        return rows


def open_rows(stored: RowsByKey, until: Bound | None, ctx: Context) -> RowsByKey:
    """The rows of windows that took rows when this epoch began: others may still be in a bucket."""
    limit = None if until is None else until.limit(ctx.watermark_before)
    if until is None or limit is None:
        return stored
    live = ~until.passed(micros(stored.table.column(END))[0], limit)
    if live.all():
        return stored
    return RowsByKey(stored.table.filter(pa.array(live)), stored.key_index[live])
