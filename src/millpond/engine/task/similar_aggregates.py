"""Computes similar aggregates together: in an epoch of few rows, many of them cost as much as one.

Law: every aggregate gets the state that it would get alone (law 3).  Aggregates are similar if their keys
and arguments have the same types and their functions are the same, whatever their inputs and column names.
So their groups are those of one aggregate with one more key column, the number of the aggregate.  If two
keys have the same hash or a value is undefined, there is no result, and each aggregate is computed alone.
DISTINCT is an aggregate without functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import delta as deltas
from millpond import hashing
from millpond.delta import HASH, WEIGHT
from millpond.engine.task.picked_rows import Picked
from millpond.identity import canonical, one_chunk, same_rows, take
from millpond.kernels.accumulators import Accumulator
from millpond.kernels.aggregate_feeds import AggregateFeed
from millpond.kernels.group_changes import Failing
from millpond.operators.aggregate import Aggregate, ints
from millpond.operators.distinct import Distinct
from millpond.operators.operator import Binding
from millpond.state.runs.merge import OpenFile
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import stacked_name
from millpond.state.tables import batched_lookup
from millpond.state.tables.stacked_rows import stack_shape
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Stack:
    """New rows of several tables, one table after the other; see `PackedWriter.add_stack`."""

    members: tuple[tuple[TableSpec, int], ...]
    columns: dict[str, pa.Array]

    def each(self) -> Iterator[pa.Table]:
        """The rows of each table, under its own column names."""
        first = 0
        for spec, size in self.members:
            names = {stacked_name(index): name for index, name in enumerate(spec.schema.names)}
            yield pa.table({names.get(n, n): c.slice(first, size) for n, c in self.columns.items()})
            first += size


@dataclass(frozen=True)
class _MemberRows:
    """The rows of all aggregates, one aggregate after the other, each sorted by hash."""

    key: list[pa.Array]
    arguments: list[pa.Array | None]  # for each function
    weights: Ints | None
    hashes: Hashes
    firsts: Ints  # the first row of each aggregate, and the end


@dataclass(frozen=True)
class Member:
    """One of several aggregates that are computed together."""

    operator: Aggregate
    kinds: tuple[Accumulator, ...]
    table: TableSpec

    @staticmethod
    def of(operator: object, binding: Binding) -> Member | None:
        """The member for an operator; None if it is always computed alone."""
        if isinstance(operator, Distinct) and operator.expires is None:
            names = tuple(binding.shape.schema.names)
            return Member(Aggregate(names, (), (AggregateFeed("rows", ()),)), (), binding.tables[0])
        if not isinstance(operator, Aggregate) or len(operator.feeds) > 1 or not operator.key:
            return None
        if operator.until is not None or operator.spread is not None:
            return None
        return Member(operator, binding.extra, binding.tables[0])

    def likeness(self, schema: pa.Schema) -> tuple[Any, ...] | None:
        """What similar members have in common; None if it has no similar ones.  Its input is `given`."""
        table = stack_shape(self.table)
        calls = tuple(
            (a.function, None if a.argument is None else schema.field(a.argument).type, a.distinct)
            for a in self.operator.aggs
        )
        return None if table is None else (table, calls, repr(self.kinds))


def apply(
    members: Sequence[Member],
    inputs: Sequence[pa.Table | Picked],
    runs: Sequence[Sequence[RunRef]],
    open_file: OpenFile,
) -> Stack | None:
    """Add the rows of an epoch, as the sender receives them, to the groups of each; None: see the law."""
    operator, kinds, groups = members[0].operator, members[0].kinds, members[0].table
    rows = _joined_inputs([member.operator for member in members], inputs)
    fresh_rows = rows.hashes[1:] != rows.hashes[:-1]
    fresh_rows[rows.firsts[1:-1] - 1] = True
    starts = np.flatnonzero(np.concatenate(([True], fresh_rows)))
    again = np.flatnonzero(~fresh_rows)
    if not hashing.is_injective(rows.key) and not same_rows(rows.key, again, again + 1):
        return None
    lengths = np.diff(np.append(starts, len(rows.hashes)))
    counts = lengths if rows.weights is None else np.add.reduceat(rows.weights, starts)
    key = [take(column, starts) for column in rows.key]
    asked = batched_lookup.KeysByTable(rows.hashes[starts], key, starts.searchsorted(rows.firsts))
    wanted = [groups.schema.get_field_index(name) for name in operator.kept(groups, kinds)]
    places = [index for index in wanted if groups.schema.names[index] not in operator.key]
    looked = batched_lookup.lookup([member.table for member in members], runs, open_file, asked, places)
    if looked is None:
        return None
    is_found, lookup = looked
    old = pa.table([lookup[p] for p in places], names=[groups.schema.names[p] for p in places])
    fresh: dict[str, Any] = {"_n": ints(old.column("_n")) + counts}
    for i, argument in enumerate(rows.arguments):
        if argument is None:
            fresh[f"_a{i}_n"] = counts
            continue
        for name, values in kinds[i].partial(argument, rows.weights, starts, counts).items():
            fresh[f"_a{i}_{name}"] = values
    columns: dict[str, Any] = dict(zip(operator.key, key, strict=True))
    errors: list[Failing] = []
    for i, kind in enumerate(kinds):
        operator.advance(i, kind, is_found, old, fresh, fresh["_n"], columns, errors)
    if errors or (fresh["_n"] < 0).any():
        return None
    columns = {**fresh, **columns}
    weight = (fresh["_n"] > 0).astype(np.int64)
    stored = {
        HASH: pa.array(asked.hashes),
        **{
            stacked_name(index): _typed(columns[field.name], field.type)
            for index, field in enumerate(groups.fields)
        },
        WEIGHT: pa.array(weight),
    }
    keep = is_found | (weight > 0)  # a group that appeared and vanished within the epoch leaves nothing
    bounds = asked.starts
    if not keep.all():
        where = np.flatnonzero(keep)
        stored = {name: take(column, where) for name, column in stored.items()}
        bounds = where.searchsorted(bounds)
    sizes = np.diff(bounds).tolist()
    return Stack(tuple((m.table, size) for m, size in zip(members, sizes, strict=True)), stored)


def _typed(values: Any, kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind) if isinstance(values, np.ndarray) else one_chunk(values)


def _joined_inputs(operators: Sequence[Aggregate], inputs: Sequence[pa.Table | Picked]) -> _MemberRows:
    firsts = np.cumsum([0, *(rows.num_rows for rows in inputs)])
    key = [
        canonical(_gathered(inputs, [o.key[index] for o in operators]))
        for index in range(len(operators[0].key))
    ]
    arguments = [
        None if agg.argument is None else _gathered(inputs, [o.aggs[i].argument for o in operators])
        for i, agg in enumerate(operators[0].aggs)
    ]
    weights = None
    if any(WEIGHT in _given(rows).column_names for rows in inputs):
        weights = np.concatenate([_weights(rows) for rows in inputs])
    hashed = [one for one in map(_hashes, inputs) if one is not None]
    if len(hashed) == len(inputs):
        return _MemberRows(key, arguments, weights, np.concatenate(hashed), firsts)
    hashes = hashing.hash_columns(key, int(firsts[-1]))
    order = np.concatenate(
        [a + np.argsort(hashes[a:b]) for a, b in zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)]
    )
    return _MemberRows(
        [take(column, order) for column in key],
        [None if column is None else take(column, order) for column in arguments],
        None if weights is None else weights[order],
        hashes[order],
        firsts,
    )


def _given(rows: pa.Table | Picked) -> pa.Table:
    return rows.rows if isinstance(rows, Picked) else rows


def _weights(rows: pa.Table | Picked) -> Ints:
    return rows.weights() if isinstance(rows, Picked) else deltas.weights(rows)


def _hashes(rows: pa.Table | Picked) -> Hashes | None:
    """The hashes of rows that are sorted by the hashes of their key; see `engine.task.hash_order`."""
    if isinstance(rows, Picked):
        return rows.hashes
    return one_chunk(rows.column(HASH)).to_numpy() if HASH in rows.column_names else None


def _gathered(inputs: Sequence[pa.Table | Picked], names: Sequence[str | None]) -> pa.Array:
    """One column of each input, concatenated; picks from the same column are combined into one take."""
    parts: list[pa.Array] = []
    pending: tuple[pa.Table, str] | None = None  # the column whose positions are pending
    places: list[Ints] = []

    def taken() -> None:
        if pending is not None:
            parts.append(take(one_chunk(pending[0].column(pending[1])), np.concatenate(places)))
            places.clear()

    for rows, name in zip(inputs, names, strict=True):
        assert name is not None
        picked = (rows.rows, rows.names[name]) if isinstance(rows, Picked) else None
        if picked is None or pending is None or picked[0] is not pending[0] or picked[1] != pending[1]:
            taken()
        pending = picked
        if isinstance(rows, Picked):
            places.append(rows.places)
        else:
            parts.append(one_chunk(rows.column(name)))
    taken()
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
