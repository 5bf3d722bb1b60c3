"""LookupMemory: what each row of a changing left side was joined with when it came.

Inputs: the left side of a lookup join, and what the join made of the rows that this epoch inserted there.

Law: a retraction of a left row retracts exactly the rows that its insertion produced, whatever the right side
holds by then; of equal rows, the one that came first goes first.  A retraction cannot be computed from the
right side as it is now, so the operator *remembers*: the table `arrivals` has the left rows by the epoch in
which they came, and `joined` the output rows by that epoch.  Equal rows of one epoch have equal partners.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import delta as deltas
from millpond.delta import WEIGHT
from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.kernels.bounds import Bound, among, bucketed_by
from millpond.operators.insertions import net_change
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import DependsOnArrival, ExpiresBehindBound
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]

ARRIVED = "_arrived"  # the epoch in which a row of the left came


@dataclass(frozen=True)
class LookupMemory(ExpiresBehindBound, DependsOnArrival):
    """`key` identifies rows of the left; `columns` are those of the left whose change makes another row.

    The joined rows have all these columns under their names.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    expires: Bound | None = None  # rows of the left behind it cannot be retracted any more

    canonical: ClassVar[bool] = True

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        left, joined = inputs
        nested = [n for n in self.key if pa.types.is_nested(left.schema.field(n).type)]
        if nested:
            raise InvalidError(
                f"rows with the nested column {nested[0]!r} cannot be recognized when they are retracted",
                hint="give the table on the left a primary key",
                step=step,
            )
        schema = stored(joined.schema)
        arrived = pa.field(ARRIVED, pa.int64())
        some = dict.fromkeys((*self.key, *((self.expires.column,) if self.expires is not None else ())))
        known = pa.schema([*(schema.field(name) for name in some), arrived])
        by_time = bucketed_by(self.expires)
        arrivals = TableSpec(f"{step}/arrivals", known, self.key, rule="weights", **by_time)
        rows = TableSpec(f"{step}/joined", pa.schema([*schema, arrived]), self.key, rule="weights", **by_time)
        timed = left.time in schema.names
        shape = Shape(
            schema,
            False,
            None,
            left.time if timed else None,
            left.watermark if timed else None,
            among(left.bounds, self.columns),
        )
        return Binding(shape, (by_key(*self.key), by_key(*self.key)), (arrivals, rows), placed_by=self.key)

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return frozenset(self.columns), frozenset(binding.shape.schema.names)

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        left, joined = inputs
        arrivals, rows = binding.tables
        drops = self.ended(ctx, binding)
        if left is None:
            return StepResult(drops=drops)
        net = net_change(left, self.columns)
        weights = deltas.weights(net)
        parts: list[tuple[pa.Table, pa.Table]] = []  # (changes of arrivals, changes of joined rows)
        if (weights < 0).any():
            parts.append(self._retracted(ctx, binding, net.filter(pa.array(weights < 0))))
        came = net.filter(pa.array(weights > 0))
        if came.num_rows:
            known = came.select([*arrivals.schema.names[:-1], WEIGHT])
            made = binding.shape.schema.empty_table() if joined is None else joined
            made = deltas.with_weights(made.select(binding.shape.schema.names), deltas.weights(made))
            parts.append((_at(known, arrivals, ctx.epoch), _at(deltas.consolidate(made), rows, ctx.epoch)))
        if not parts:
            return StepResult(drops=drops)
        known, made = (deltas.consolidate(deltas.concat(some)) for some in zip(*parts, strict=True))
        out = deltas.consolidate(made.select([*binding.shape.schema.names, WEIGHT]))
        changes = [
            Change(spec.name, some) for spec, some in ((arrivals, known), (rows, made)) if some.num_rows
        ]
        return StepResult(out if out.num_rows else None, tuple(changes), drops=drops)

    def _retracted(self, ctx: Context, binding: Binding, gone: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The changes of both tables for rows that leave: their earliest arrivals, with their output."""
        arrivals, rows = binding.tables
        keys = KeySet.of(gone, self.key)
        wanted = np.bincount(keys.inverse, -deltas.weights(gone), len(keys)).astype(np.int64)
        stored = ctx.table(arrivals.name).lookup(keys)
        epochs = one_chunk(stored.table.column(ARRIVED)).to_numpy()
        order = np.lexsort((epochs, stored.key_index))
        key, row_weights = stored.key_index[order], deltas.weights(stored.table)[order]
        first = np.searchsorted(key, key)  # of each arrival: the earliest one of its key
        before = np.cumsum(row_weights) - row_weights
        taken = np.clip(wanted[key] - (before - before[first]), 0, row_weights)
        known = stored.table.select(arrivals.schema.names).take(pa.array(order))
        parts = ctx.table(rows.name).lookup(keys)
        positions = _places(
            key, epochs[order], parts.key_index, one_chunk(parts.table.column(ARRIVED)).to_numpy()
        )
        per_copy = deltas.weights(parts.table) // row_weights[positions]
        return (
            _some(known, -taken),
            _some(parts.table.select(rows.schema.names), -per_copy * taken[positions]),
        )


def _at(rows: pa.Table, spec: TableSpec, epoch: int) -> pa.Table:
    """Rows of the table of this epoch."""
    at = pa.array(np.full(rows.num_rows, epoch, np.int64))
    return rows.append_column(ARRIVED, at).select([*spec.schema.names, WEIGHT])


def _some(rows: pa.Table, weights: Ints) -> pa.Table:
    return deltas.with_weights(rows, weights).filter(pa.array(weights != 0))


def _places(key: Ints, epoch: Ints, wanted_key: Ints, wanted_epoch: Ints) -> Ints:
    """The position of each wanted pair among sorted pairs that contain it."""
    ranks, rank = np.unique(np.concatenate([epoch, wanted_epoch]), return_inverse=True)
    codes = np.concatenate([key, wanted_key]) * len(ranks) + rank
    indices: Ints = np.searchsorted(codes[: len(key)], codes[len(key) :])
    return indices
