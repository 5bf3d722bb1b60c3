"""Distinct: emits each row once, however often it occurs.

Law: a row is in the output while its count is above zero.  The counts are stored in
a *latest* table keyed by the row, in a hidden column, and that table is the view;
an epoch costs the distinct rows it touches.  Senders add up equal rows before
they send them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond import hashing
from millpond.delta import HASH, WEIGHT, consolidate, first_of_each, weights, with_weights
from millpond.errors import InternalError, InvalidError
from millpond.identity import canonical, one_chunk, take
from millpond.kernels.bounds import Bound, among, bucketed_by, buckets_of
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import ExpiresBehindBound, PreparesInput, UsesHashOrder
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

COUNT = "_n"


@dataclass(frozen=True)
class Distinct(ExpiresBehindBound, UsesHashOrder, PreparesInput):
    """Distinct over some columns, which are then the only output columns; over all columns if None."""

    columns: tuple[str, ...] | None = None
    expires: Bound | None = None  # rows behind it have expired, and the table is not read

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        names = tuple(shape.schema.names) if self.columns is None else self.columns
        if not names:
            raise InvalidError("distinct needs at least one column", step=step)
        if unknown := [name for name in names if name not in shape.schema.names]:
            raise InvalidError(
                f"there is no column {unknown[0]!r}",
                detail=f"columns are {', '.join(shape.schema.names)}",
                step=step,
            )
        schema = stored(pa.schema([shape.schema.field(name) for name in names]))
        counted = schema.append(pa.field(COUNT, pa.int64()))
        table = TableSpec(f"{step}/out", counted, key=names, **bucketed_by(self.expires))
        bounded = shape.time in names
        return Binding(
            Shape(
                schema,
                shape.append_only,
                key=names,
                time=shape.time if bounded else None,
                watermark=shape.watermark if bounded else None,
                bounds=among(shape.bounds, names),
            ),
            (by_key(*names),),
            (table,),
            view=None if self.expires else table.name,
            placed_by=names,
            wire=schema,
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.shape.schema.names),)

    def prepare(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        """One row per distinct row of this sender, canonical, with the sum of its weights."""
        names = binding.shape.schema.names
        if HASH in delta.column_names:
            return _counted(delta, names)
        summed = _summed(delta, names)
        hashes = hashing.hash_columns([summed.column(name) for name in names], summed.num_rows)
        hashed = summed.append_column(pa.field(HASH, pa.uint64()), pa.array(hashes))
        return hashed.take(pa.array(np.argsort(hashes)))

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (delta,) = inputs
        (spec,) = binding.tables
        drops = self.ended(ctx, binding)
        if delta is None:
            return StepResult(drops=drops)
        names = binding.shape.schema.names
        keys = KeySet.of(delta, names, delta.column(HASH).to_numpy())
        added = np.zeros(len(keys), np.int64)
        np.add.at(added, keys.inverse, weights(delta))
        _, state = ctx.table(spec.name, buckets=buckets_of(spec, keys.columns)).lookup_one(keys, [COUNT])
        before = state.column(COUNT).to_numpy()
        after = before + added
        if (after < 0).any():
            raise InternalError(
                "more rows were retracted than there are",
                detail=f"{int((after < 0).sum())} rows, lowest count {int(after.min())}",
                step=ctx.step,
                epoch=ctx.epoch,
            )
        rows = keys.columns.append_column(pa.field(HASH, pa.uint64()), pa.array(keys.hashes))
        counted = rows.append_column(pa.field(COUNT, pa.int64()), pa.array(after))
        alive = (after > 0).astype(np.int64)
        changed = np.flatnonzero(added)
        if len(changed) < len(added):
            counted, alive = counted.take(pa.array(changed)), alive[changed]
        change = with_weights(counted, alive)
        out = None
        if ctx.output_is_read:
            turned = np.flatnonzero((before > 0) != (after > 0))
            out = with_weights(rows.take(pa.array(turned)), np.where(after[turned] > 0, 1, -1))
        return StepResult(out, (Change(spec.name, change),), drops=drops)


def _counted(delta: pa.Table, names: list[str]) -> pa.Table:
    """The sums for rows sorted by hash, if each hash belongs to one row only."""
    hashes = one_chunk(delta.column(HASH)).to_numpy()
    starts = first_of_each(hashes)
    sums = np.add.reduceat(weights(delta), starts)
    starts, sums = starts[sums != 0], sums[sums != 0]
    columns = [canonical(take(one_chunk(delta.column(name)), starts)) for name in names]
    return pa.table([*columns, pa.array(sums), pa.array(hashes[starts])], names=[*names, WEIGHT, HASH])


def _summed(delta: pa.Table, names: list[str]) -> pa.Table:
    """`consolidate` over these columns, in any order; by Arrow's grouping, which is many times faster."""
    columns = {name: canonical(one_chunk(delta.column(name))) for name in names}
    rows = with_weights(pa.table(columns), weights(delta))
    try:
        found = rows.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum")])
    except pa.ArrowNotImplementedError:  # nested columns
        return consolidate(rows)
    found = found.rename_columns([*names, WEIGHT])
    return found.filter(pc.not_equal(found.column(WEIGHT), 0))
