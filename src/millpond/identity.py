"""Decides when two values are equal, and sorts rows that a cheaper sort leaves tied.

Law: canonical equality.  NULL = NULL, NaN = NaN, -0.0 = 0.0, lists by their elements, structs by their
fields.  It agrees with `hashing` (equal values hash equal) and with `ordering` (equal values have equal
ranks), so a hash or a sort may propose equality and this module decides.

`refine` is the only exact sort of the code base: it takes rows that are already sorted by something cheap (a
hash, a group number) and sorts only the rows that still tie, column by column.  Rows that tie in the end are
equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import ordering
from millpond.ordering import Order

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Column: TypeAlias = pa.Array | pa.ChunkedArray


def one_chunk(column: Column) -> pa.Array:
    """The column as one plain array: no chunks, no dictionary, no extension."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # an empty column, or one too long for 32-bit offsets
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def take(column: pa.Array, rows: Ints) -> pa.Array:
    """The values at these positions; consecutive positions are a slice, without a copy."""
    if (
        len(rows)
        and rows[-1] - rows[0] + 1 == len(rows)
        and (len(rows) < 3 or bool((np.diff(rows) == 1).all()))
    ):
        return column.slice(int(rows[0]), len(rows))
    return pc.take(column, pa.array(rows), boundscheck=False)


def fixed_view(array: pa.Array) -> npt.NDArray[Any] | None:
    """The raw values of an array with values of 1, 2, 4 or 8 bytes, or None; undefined under NULLs."""
    kind = array.type
    if not pa.types.is_primitive(kind) or kind.bit_width not in (8, 16, 32, 64):
        return None
    data = array.buffers()[1]
    dtype = np.dtype(f"u{kind.bit_width // 8}")
    if data is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, count=array.offset + len(array))[array.offset :]


def nulls(array: pa.Array) -> Bools:
    mask: Bools = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def equal(a: pa.Array, b: pa.Array) -> Bools:
    """Row by row: is a[i] the same value as b[i]? Both have one type and one length."""
    kind = a.type
    if a.null_count or b.null_count:
        null_a, null_b = nulls(a), nulls(b)
        both = ~(null_a | null_b)
        if both.all():  # an all-valid slice that has not counted its nulls
            return _equal_values(a, b)
        same = null_a & null_b
        rows = np.flatnonzero(both)
        same[rows] = _equal_values(take(a, rows), take(b, rows))
        return same
    if pa.types.is_null(kind):
        return np.ones(len(a), np.bool_)
    return _equal_values(a, b)


def _equal_values(a: pa.Array, b: pa.Array) -> Bools:
    """`equal` for arrays without NULLs."""
    kind = a.type
    t = pa.types
    if t.is_null(kind) or not len(a):
        return np.ones(len(a), np.bool_)
    if t.is_floating(kind):
        x, y = _floats(a), _floats(b)
        same_float: Bools = (x == y) | (np.isnan(x) & np.isnan(y))
        return same_float
    x_raw, y_raw = fixed_view(a), fixed_view(b)
    if x_raw is not None and y_raw is not None:
        same_bits: Bools = x_raw == y_raw
        return same_bits
    if t.is_struct(kind):
        same = np.ones(len(a), np.bool_)
        for place in range(kind.num_fields):
            same &= equal(a.field(place), b.field(place))
        return same
    if t.is_map(kind):
        return _equal_lists(_entries(a), _entries(b))
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return _equal_lists(a, b)
    if isinstance(a, pa.ExtensionArray):
        return equal(a.storage, b.storage)
    if t.is_dictionary(kind):
        return equal(a.dictionary_decode(), b.dictionary_decode())
    try:
        same_value: Bools = pc.equal(a, b).to_numpy(zero_copy_only=False)
        return same_value
    except pa.ArrowNotImplementedError:  # unions, views, intervals: rare, exact, slow
        return np.fromiter((x == y for x, y in zip(a, b, strict=True)), np.bool_, len(a))


def _floats(array: pa.Array) -> npt.NDArray[Any]:
    raw = fixed_view(array)
    assert raw is not None
    return raw.view(np.dtype(f"f{raw.itemsize}"))


def _entries(array: pa.MapArray) -> pa.Array:
    """A map as the list of its entries."""
    entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    return pa.ListArray.from_arrays(array.offsets, entries)


def _equal_lists(a: pa.Array, b: pa.Array) -> Bools:
    lengths_a = pc.list_value_length(a).to_numpy(zero_copy_only=False)
    lengths_b = pc.list_value_length(b).to_numpy(zero_copy_only=False)
    same: Bools = lengths_a == lengths_b
    rows = np.flatnonzero(same)
    elements = equal(take(a, rows).flatten(), take(b, rows).flatten())
    differing = np.concatenate([[0], np.cumsum(~elements)])
    ends = np.cumsum(lengths_a[rows])
    same[rows] = differing[ends] == differing[ends - lengths_a[rows]]
    return same


def equal_at(column: pa.Array, a: Ints, b: Ints) -> Bools:
    """For each pair of positions: does the column have the same value at both?"""
    if not column.null_count and not pa.types.is_floating(column.type):
        raw = fixed_view(column)
        if raw is not None:
            same: Bools = raw[a] == raw[b]
            return same
    return equal(take(column, a), take(column, b))


def same_rows(columns: Sequence[pa.Array], a: Ints, b: Ints) -> bool:
    """Are the rows at these positions, pair by pair, all the same?"""
    return all(bool(equal_at(column, a, b).all()) for column in columns)


def equal_rows(a: Sequence[pa.Array], b: Sequence[pa.Array], length: int) -> Bools:
    """`equal` over several columns: are all of them equal?"""
    same = np.ones(length, np.bool_)
    for x, y in zip(a, b, strict=True):
        same &= equal(x, y)
    return same


def canonical(column: pa.Array) -> pa.Array:
    """The column with one zero and one NaN, so that equal values have equal bits.

    Returns the same object if there is nothing to change, which is the usual case.
    """
    kind = column.type
    t = pa.types
    if not len(column) or not _has_floats(kind):
        return column
    if t.is_floating(kind):
        return _canonical_floats(column)
    if t.is_struct(kind):
        children = [column.field(place) for place in range(kind.num_fields)]
        clean = [canonical(child) for child in children]
        if all(x is y for x, y in zip(children, clean, strict=True)):
            return column
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(clean, fields=list(kind), mask=mask)
    if t.is_map(kind):
        keys, items = canonical(column.keys), canonical(column.items)
        if keys is column.keys and items is column.items:
            return column
        return _with_children(
            column, [pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])]
        )
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        values = column.values
        clean_values = canonical(values)
        return column if clean_values is values else _with_children(column, [clean_values])
    return column


def _with_children(column: pa.Array, children: list[pa.Array]) -> pa.Array:
    """The same lists with other elements."""
    own = column.buffers()[: column.type.num_buffers]
    return pa.Array.from_buffers(
        column.type, len(column), own, null_count=column.null_count, offset=column.offset, children=children
    )


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return True
    return any(_has_floats(kind.field(place).type) for place in range(kind.num_fields))


def _canonical_floats(column: pa.Array) -> pa.Array:
    values = _floats(column)
    wrong = (values == 0) & np.signbit(values)
    nan = np.isnan(values)
    if nan.any():
        raw = values.view(f"u{values.itemsize}")
        wrong |= nan & (raw != np.array(np.nan, values.dtype).view(raw.dtype))
    if not wrong.any():
        return column
    with np.errstate(invalid="ignore"):  # the value under a NULL may be a signalling NaN
        fixed = values + values.dtype.type(0)
    fixed[nan] = np.nan
    mask = nulls(column) if column.null_count else None
    return pa.array(fixed, column.type, mask=mask, from_pandas=False)


def refine(
    perm: Ints, same: Bools, taken: Callable[[Ints], pa.Array], order: Order, *, stable: bool = False
) -> None:
    """Sort each tie of `perm` further by one column, in place.

    `same[i]` says that row perm[i] ties with row perm[i - 1]; afterwards only rows that are also equal in
    this column still tie.  `taken(rows)` returns the column's values of these rows, so that only tied rows
    are read.
    """
    member = same.copy()
    member[:-1] |= same[1:]
    places = np.flatnonzero(member)
    if not len(places):
        return
    rows = perm[places]
    starts = ~same[places]
    rank = ordering.ranks(taken(rows), order)
    step_down = rank[1:] < rank[:-1]
    if (step_down & ~starts[1:]).any():
        within = sort_pairs(np.cumsum(starts), rank, stable=stable)
        perm[places] = rows[within]
        rank = rank[within]
    same[places[1:]] &= rank[1:] == rank[:-1]


def sort_pairs(group: Ints, rank: Hashes, *, stable: bool) -> Ints:
    """Sort by (group, rank); groups are positive."""
    least = rank.min()
    rank_bits = int(rank.max() - least).bit_length()
    if rank_bits + int(group.max()).bit_length() <= 64:
        packed = (rank - least) | (group.astype(np.uint64) << np.uint64(rank_bits))
        return np.argsort(packed, kind="stable" if stable else None)
    return np.lexsort((rank, group))


def ties(values: npt.NDArray[Any]) -> Bools:
    """same[i]: values[i] equals values[i - 1]."""
    same = np.zeros(len(values), np.bool_)
    same[1:] = values[1:] == values[:-1]
    return same


def repeat(value: pa.Array, count: int) -> pa.Array:
    """One value, `count` times."""
    if count == 1:
        return value
    if pa.types.is_nested(value.type) or isinstance(value, pa.ExtensionArray):
        return value.take(pa.array(np.zeros(count, np.int64)))
    return pa.repeat(value[0], count)
