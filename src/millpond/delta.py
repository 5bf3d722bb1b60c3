"""Deltas: tables of changes with a weight per row.

A delta is an Arrow table with the user's columns, a weight `_w` (int64; if absent, every weight is +1) and
optionally `_h`, the key hash, and `_o`, the origin: the position of a row among those that an epoch admitted,
which is passed to the steps that need it.  +1 inserts a row, -1 retracts it.  A delta is a multiset in which
counts may be negative, and every function here depends only on that multiset (law 3): `consolidate` returns
the same bits whatever the order, the chunks or the encoding of its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.errors import InternalError
from millpond.identity import canonical, one_chunk, refine, same_rows, take, ties
from millpond.ordering import Order

WEIGHT = "_w"
HASH = "_h"
ORIGIN = "_o"  # int64: number of the split in the epoch << ORIGIN_BITS | row in the split
ORIGIN_BITS = 40

Weights = npt.NDArray[np.int64]


def weights(table: pa.Table) -> Weights:
    """The weight of each row; all +1 if the table has no weights.

    >>> weights(pa.table({"x": ["a", "b"]})).tolist()
    [1, 1]
    """
    if WEIGHT not in table.column_names:
        return np.ones(table.num_rows, np.int64)
    column = one_chunk(table.column(WEIGHT))
    if column.type != pa.int64() or column.null_count:
        raise InternalError(
            "weights must be int64 without NULL",
            detail=f"column {WEIGHT!r} is {column.type} with {column.null_count} NULLs in {len(column)} rows",
        )
    values: Weights = column.to_numpy()
    return values


def with_weights(table: pa.Table, w: Weights) -> pa.Table:
    """The table with its weights replaced by these.

    >>> with_weights(pa.table({"x": [7]}), np.array([-1])).to_pylist()
    [{'x': 7, '_w': -1}]
    """
    if len(w) != table.num_rows:
        raise InternalError("one weight per row is needed", detail=f"{len(w)} weights, {table.num_rows} rows")
    column = pa.array(np.asarray(w, np.int64))
    if WEIGHT in table.column_names:
        return table.set_column(table.column_names.index(WEIGHT), pa.field(WEIGHT, pa.int64()), column)
    return table.append_column(pa.field(WEIGHT, pa.int64()), column)


def without_origin(table: pa.Table) -> pa.Table:
    """The table without the origin column."""
    return table.drop_columns([ORIGIN]) if ORIGIN in table.column_names else table


def first_of_each(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The index at which each distinct hash begins, in sorted hashes.

    >>> first_of_each(np.array([3, 3, 5], np.uint64)).tolist()
    [0, 2]
    """
    fresh = np.empty(len(hashes), np.bool_)
    fresh[:1] = True
    np.not_equal(hashes[1:], hashes[:-1], out=fresh[1:])
    return fresh.nonzero()[0]


def negate(table: pa.Table) -> pa.Table:
    """The delta that reverts this one."""
    return with_weights(table, -weights(table))


def assert_non_negative(table: pa.Table, *, step: str | None = None, epoch: int | None = None) -> None:
    """Raise an error if a weight is negative: a retraction without a matching row."""
    w = weights(table)
    owed = np.flatnonzero(w < 0)
    if len(owed):
        first = table.slice(int(owed[0]), 1).to_pylist()[0]
        raise InternalError(
            "a multiset has rows with a negative weight",
            detail=f"{len(owed)} of {len(w)} rows, lowest weight {w.min()}, first {first}",
            hint="a retraction met no row; the step that sent it is at fault",
            step=step,
            epoch=epoch,
        )


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """The sum of several deltas of one schema.

    Weights are filled in if only some tables have them; the key hash is kept only if all tables have it;
    dictionaries are decoded if encodings differ.
    """
    if not tables:
        raise InternalError("concatenating deltas needs at least one: it gives the schema")
    if len(tables) == 1:
        return tables[0]
    if any(WEIGHT in t.column_names for t in tables):
        tables = [t if WEIGHT in t.column_names else with_weights(t, weights(t)) for t in tables]
    names = [n for n in tables[0].column_names if n != HASH or all(HASH in t.column_names for t in tables)]
    fields = []
    for name in names:
        kinds = {t.schema.field(name).type for t in tables if name in t.column_names}
        if len(kinds) > 1:
            kinds = {k.value_type if pa.types.is_dictionary(k) else k for k in kinds}
        if len(kinds) > 1:
            raise InternalError(
                "deltas of one edge must have one schema",
                detail=f"column {name!r} is " + " and ".join(sorted(map(str, kinds))),
            )
        fields.append(tables[0].schema.field(name).with_type(kinds.pop()))
    for table in tables[1:]:
        if {*table.column_names} - {HASH} != {*names} - {HASH}:
            raise InternalError(
                "deltas of one edge must have one schema", detail=f"{names} and {table.column_names}"
            )
    schema = pa.schema(fields)
    return pa.concat_tables([_conform(t.select(names), schema) for t in tables]).unify_dictionaries()


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def consolidate(table: pa.Table, *, columns: Sequence[str] | None = None) -> pa.Table:
    """Sum equal rows and remove zero weights; the resulting order depends only on the rows.

    With `columns` the delta is first projected to them.  A hash over all columns proposes which rows are
    equal and determines the order; every proposal is checked, and different rows with the same hash are
    ordered by their values.

    >>> consolidate(pa.table({"x": ["a", "b", "a"], "_w": [1, 1, -1]})).to_pylist()
    [{'x': 'b', '_w': 1}]
    """
    if columns is not None:
        table = table.select([*columns, *([WEIGHT] if WEIGHT in table.column_names else [])])
    w = weights(table)
    names = [name for name in table.column_names if name not in (WEIGHT, HASH)]
    values = {name: canonical(one_chunk(table.column(name))) for name in names}
    if HASH in table.column_names:  # a function of the row: copied, not compared
        values[HASH] = one_chunk(table.column(HASH))
    perm, same = arrange([values[name] for name in names], table.num_rows)
    starts = np.flatnonzero(~same)
    if len(starts):
        w = np.add.reduceat(w[perm], starts)
    alive = np.flatnonzero(w)
    rows = perm[starts[alive]]
    out = {name: take(column, rows) for name, column in values.items()}
    out[WEIGHT] = pa.array(w[alive])
    schema = table.schema
    if WEIGHT not in schema.names:
        schema = schema.append(pa.field(WEIGHT, pa.int64()))
    return pa.table([_encoded_as(field.type, out[field.name]) for field in schema], schema=schema)


def _encoded_as(kind: pa.DataType, column: pa.Array) -> pa.Array:
    """The column in the table's original type: encodings are part of a schema."""
    if kind == column.type:
        return column
    return column.cast(kind) if pa.types.is_dictionary(kind) else pa.ExtensionArray.from_storage(kind, column)


def arrange(columns: Sequence[pa.Array], length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """An order of the rows that depends on their values alone, and which rows equal their neighbour.

    Returns (perm, same): same[i] says that rows perm[i] and perm[i - 1] are equal.
    """
    hashes = hashing.hash_columns(columns, length)
    perm = np.argsort(hashes)
    same = ties(hashes[perm])
    again = np.flatnonzero(same)
    if len(again):
        before, after = perm[again - 1], perm[again]
        if not same_rows(columns, before, after):
            for column in columns:
                refine(perm, same, partial(take, column), Order(""))
    return perm, same
