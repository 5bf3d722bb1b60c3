"""Brings rows into the order of their table: by key hash, then key, then the order columns.

Law: the result depends on the rows alone, and has one row for each identity.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, WEIGHT, weights
from millpond.errors import InternalError
from millpond.identity import canonical, one_chunk, refine, same_rows, take, ties
from millpond.ordering import Order
from millpond.state.tables.table_spec import TableSpec

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


def sorted_columns(spec: TableSpec, rows: pa.Table, *, presorted: bool = False) -> dict[str, pa.Array]:
    """The columns of a segment (_h, the schema's, _w) sorted by (_h, key, order[, rest])."""
    by_name = dict(zip(rows.column_names, rows.columns, strict=True))
    columns = {field.name: _plain(spec, by_name.get(field.name), field, rows) for field in spec.fields}
    for name in spec.identity:
        columns[name] = canonical(columns[name])
    w = weights(rows)
    if HASH in by_name:
        hash_column = one_chunk(by_name[HASH])
        if hash_column.type != pa.uint64() or hash_column.null_count:
            raise InternalError(
                f"rows for table {spec.name!r} have no proper key hashes",
                detail=f"{HASH} is {hash_column.type}",
            )
        hashes: Hashes = hash_column.to_numpy()
    else:
        hashes = hashing.hash_columns([columns[name] for name in spec.key], rows.num_rows)
    perm, same = sort_rows(spec, columns, hashes)
    if presorted and perm is not None:
        raise InternalError(f"rows for table {spec.name!r} were said to be sorted, and are not")
    if same is not None and same.any():
        perm = np.arange(len(hashes)) if perm is None else perm
        if spec.rule == "latest":
            twice = perm[np.flatnonzero(same)[:1]]
            row = {name: columns[name][int(twice[0])].as_py() for name in spec.identity}
            raise InternalError(
                f"rows for table {spec.name!r} hold one identity twice",
                detail=f"{int(same.sum())} rows too many, first {row}",
                hint="one epoch writes one row per key and order",
            )
        starts = np.flatnonzero(~same)
        w = np.add.reduceat(w[perm], starts)
        alive = np.flatnonzero(w)
        perm, w = perm[starts[alive]], w[alive]
    elif perm is not None:
        w = w[perm]
    if spec.rule == "weights" and not w.all():
        alive = np.flatnonzero(w)
        perm, w = alive if perm is None else perm[alive], w[alive]
    if perm is not None:
        hashes = hashes[perm]
        columns = {name: take(column, perm) for name, column in columns.items()}
    return {HASH: pa.array(hashes), **columns, WEIGHT: pa.array(w)}


def sort_rows(
    spec: TableSpec, columns: dict[str, pa.Array], hashes: Hashes
) -> tuple[Ints | None, npt.NDArray[np.bool_] | None]:
    """(perm, same): the table order and which neighbours are one row; None for identity and for no ties."""
    if len(hashes) < 2:
        return None, None
    if (hashes[1:] > hashes[:-1]).all():
        return None, None
    in_order = bool((hashes[1:] >= hashes[:-1]).all())
    perm = np.arange(len(hashes)) if in_order else np.argsort(hashes)
    same = ties(hashes[perm])
    again = np.flatnonzero(same)
    if not len(again):
        return perm, None
    key = [columns[name] for name in spec.key]
    before, after = perm[again - 1], perm[again]
    if not hashing.is_injective(key) and not same_rows(key, before, after):
        for column in key:  # two keys share a hash
            refine(perm, same, partial(take, column), Order(""))
    for order in spec.order_within_key:
        refine(perm, same, partial(take, columns[order.column]), order)
    if in_order and (perm[1:] > perm[:-1]).all():
        return None, same
    return perm, same


def _plain(spec: TableSpec, column: pa.ChunkedArray | None, field: pa.Field, rows: pa.Table) -> pa.Array:
    """One column as the table declares it; encodings are removed, other types are refused."""
    if column is None:
        raise InternalError(
            f"rows for table {spec.name!r} lack a column", detail=f"{field.name!r} not in {rows.column_names}"
        )
    column = one_chunk(column)
    if column.type == field.type:
        return column
    if isinstance(field.type, pa.BaseExtensionType) and field.type.storage_type == column.type:
        return pa.ExtensionArray.from_storage(field.type, column)
    if _same_values(column.type, field.type):
        return column.cast(field.type)
    raise InternalError(
        f"rows for table {spec.name!r} have another type than declared",
        detail=f"column {field.name!r} is {column.type}, declared {field.type}",
    )


def _same_values(a: pa.DataType, b: pa.DataType) -> bool:
    """Do two types differ only in layout or field names?  A column of NULLs fits any type."""
    t = pa.types
    if t.is_null(a) or a == b:
        return True
    texts = (pa.string(), pa.large_string(), pa.string_view())
    binaries = (pa.binary(), pa.large_binary(), pa.binary_view())
    if (a in texts and b in texts) or (a in binaries and b in binaries):
        return True
    same_kind = any(test(a) and test(b) for test in (t.is_struct, t.is_list, t.is_large_list, t.is_map))
    names = [[kind.field(index) for index in range(kind.num_fields)] for kind in (a, b)]
    return (
        same_kind
        and len(names[0]) == len(names[1])
        and all(
            _same_values(x.type, y.type) and (x.name == y.name or not t.is_struct(a))
            for x, y in zip(*names, strict=True)
        )
    )
