"""InOrder: holds rows back so that the rows of a key leave in the order of their event time.

Law: no row of a key leaves after one with a later time.  A row leaves when the watermark has passed its
time, or when more than `slack` rows of its key are held: then the oldest leave.  A row that comes after one
with a later time has left is late: it is stored in the table "<step>/late" and counted (law 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.delta import HASH, WEIGHT, concat, negate, weights, with_weights, without_origin
from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.kernels.bounds import Bound, among, bucketed_by
from millpond.kernels.event_time import check_time, micros, without_time
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import DependsOnArrival, EndsState
from millpond.ordering import Order, sort_indices
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

LEFT = "_left"  # the latest time of a row of the key that has left, in microseconds
NONE_LEFT = -(2**62)


@dataclass(frozen=True)
class InOrder(EndsState, DependsOnArrival):
    key: tuple[str, ...]
    time: str
    slack: int  # the number of rows of a key that are held at most
    watermark: Bound | None = None  # of the time column
    forgets: bool = False  # is `left` dropped behind the watermark?  Ponds of older versions keep it

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        check_time(shape.schema, self.time, step)
        if not shape.append_only:
            raise InvalidError("in_order needs append-only input", step=step)
        schema = stored(shape.schema)
        own = pa.schema([*(schema.field(k) for k in self.key), pa.field(LEFT, pa.int64())])
        tables = (
            TableSpec(f"{step}/held", schema, self.key, rule="weights", **bucketed_by(self.watermark)),
            TableSpec(f"{step}/left", own, self.key, defaults=((LEFT, NONE_LEFT),), **self._buckets()),
            TableSpec(f"{step}/late", schema, (self.time,), rule="weights"),
        )
        same = shape.time == self.time
        output = Shape(
            schema,
            append_only=True,
            time=shape.time if same else None,
            watermark=shape.watermark if same else None,
            bounds=among(shape.bounds, (self.time,)),  # rows that are held have not been passed yet
        )
        return Binding(output, (by_key(*self.key),), tables, placed_by=self.key)

    def _buckets(self) -> dict[str, Any]:
        """How `left` is stored: behind the watermark no row comes, so nothing needs to be known of a key."""
        if self.watermark is None or not self.forgets:
            return {}
        return {"time": LEFT, "bucket_width": self.watermark.width_us}

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names),)

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        if self.watermark is None:
            return False
        first, limit = earliest.get(binding.tables[0].name), self.watermark.limit(watermarks.get)
        return first is not None and limit is not None and first <= limit // self.watermark.width_us

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        return () if self.watermark is None else ((binding.tables[0].name, self.watermark),)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        held_spec, left_spec, late_spec = binding.tables
        names = [*held_spec.schema.names, WEIGHT]
        limit = None if self.watermark is None else self.watermark.limit(ctx.watermark)
        errors = None
        if delta is not None:
            _, usable = micros(delta.column(self.time))
            delta, errors = without_time(without_origin(delta), usable, self.time)
            delta = with_weights(delta, weights(delta))
        touched = [] if delta is None else [delta.select([*self.key, HASH])]
        if self.watermark is not None and limit is not None:
            passed = ctx.table(held_spec.name, below_bucket=limit // self.watermark.width_us + 1).scan()
            touched.append(passed.select([*self.key, HASH]))
        every = pa.concat_tables(touched, promote_options="permissive") if touched else None
        dropped = (held_spec, *((left_spec,) if left_spec.time is not None else ()))
        drops = () if self.watermark is None else self.watermark.drops(ctx.watermark, *dropped)
        if every is None or not every.num_rows:
            return StepResult(errors=errors, drops=drops)
        keys = KeySet.of(every, self.key, one_chunk(every.column(HASH)).to_numpy())
        last = ctx.table(left_spec.name).lookup(keys)  # a key may have one in several buckets
        left = np.full(len(keys), NONE_LEFT)
        np.maximum.at(left, last.key_index, one_chunk(last.table.column(LEFT)).to_numpy())
        was = left.copy()
        stored = ctx.table(held_spec.name).lookup(keys)
        rows, number = stored.table.select(names), stored.key_index.astype(np.int64)
        late = None
        if delta is not None and delta.num_rows:
            of_row = keys.inverse[: delta.num_rows]
            behind = micros(delta.column(self.time))[0] < left[of_row]
            late = delta.select(names).filter(pa.array(behind))
            rows = concat([rows, delta.select(names).filter(pa.array(~behind))])
            number = np.concatenate([number, of_row[~behind]])
        at, w = micros(rows.column(self.time))[0], weights(rows)
        leaves = self._leaving(number, at, _ranks(rows.select(held_spec.schema.names)), w)
        if limit is not None:
            leaves = np.where(at < limit, w, leaves)
        out = with_weights(rows, leaves).filter(pa.array(leaves > 0))
        np.maximum.at(left, number[leaves > 0], at[leaves > 0])
        before = stored.table.select(names)
        after = with_weights(rows, w - leaves).filter(pa.array(w > leaves))
        if self.watermark is not None and limit is not None:  # what has left is dropped with its bucket
            open_from = self.watermark.first_open(limit)
            before = before.filter(pa.array(held_spec.buckets(before) >= open_from))
        changes = [Change(held_spec.name, t) for t in (negate(before), after) if t.num_rows]
        columns = pa.table([*keys.columns.columns, pa.array(left)], schema=left_spec.schema)
        columns = columns.append_column(HASH, pa.array(keys.hashes))
        # Behind the watermark no row comes any more: what has left says nothing new.
        live = np.ones(len(keys), np.int64) if limit is None else (left >= limit).astype(np.int64)
        known = (live == 1) & (left > was)
        if left_spec.time is None:
            known |= (live == 0) & (was > NONE_LEFT)
        if known.any():
            changes.append(Change(left_spec.name, with_weights(columns, live).filter(pa.array(known))))
        count = 0 if late is None else late.num_rows
        if late is not None and count:
            changes.append(Change(late_spec.name, late))
        return StepResult(
            out if out.num_rows else None,
            tuple(changes),
            errors,
            counts={"late": count} if count else {},
            drops=drops,
        )

    def _leaving(self, number: np.ndarray, at: np.ndarray, rank: np.ndarray, w: np.ndarray) -> np.ndarray:
        """How many copies of each row leave because more than `slack` rows of its key are held.

        Rows of equal time leave in the order of all their columns, however they came (law 3).
        """
        order = np.lexsort((rank, at, number))
        sizes = w[order]
        total = np.bincount(number, w, int(number.max(initial=-1)) + 1).astype(np.int64)
        before = np.cumsum(sizes) - sizes
        first = np.append(True, number[order][1:] != number[order][:-1])[: len(order)]
        before -= np.maximum.accumulate(np.where(first, before, 0))
        leaving = np.empty(len(w), np.int64)
        leaving[order] = np.clip(total[number[order]] - self.slack - before, 0, sizes)
        return leaving


def _ranks(rows: pa.Table) -> np.ndarray:
    """The place of each row in the order of all columns."""
    order = sort_indices([rows.column(n) for n in rows.column_names], [Order(n) for n in rows.column_names])
    rank = np.empty(rows.num_rows, np.int64)
    rank[order] = np.arange(rows.num_rows)
    return rank
