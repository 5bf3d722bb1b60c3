"""Sort orders of the rows of a key, as unsigned 64-bit codes.

Law: for two values of one type, a < b implies code(a) <= code(b), in every batch, run and release.  So codes
of different batches can be merged and searched.  `ranks` and `sort_indices` are exact within their batch.

The order of values: numbers and times by value, with -0.0 = 0.0 and one NaN above +inf; strings and binaries
by their bytes (for strings that is the order of code points); structs by their fields in order; lists by
their elements, a prefix first.  Inside structs and lists NULL is the highest value.  `descending` reverses
the order of values, never the position of NULLs.

The code of NULL is 0 (nulls first) or 2**64 - 1 (nulls last), and no value has that code.  Types that use all
64 bits (int64, uint64, timestamp, duration) give up one code for it: the two values at that end of the range
share one code, and only `ranks` distinguishes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import buffers, tuning
from millpond.buffers import (
    I64,
    U64,
    Bytes,
    Column,
    Ints,
    Mask,
    doubles,
    elements,
    fixed,
    is_bytes,
    is_list,
    limbs,
    nulls,
    plain,
    strings,
)
from millpond.errors import InvalidError

_TOP = np.uint64(1 << 63)
_MAX = np.uint64((1 << 64) - 1)
_ONE = np.uint64(1)

# Strings that are equal in this many 8-byte words are compared by Arrow.
_WORDS = 8


# _HEAD[n] keeps the first n bytes of a word.
_HEAD = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)

# The code of some rows of a column; rows are distinguished by one digit after another.
_Digit = Callable[[I64], U64]


@dataclass(frozen=True)
class Order:
    """One column of a sort order."""

    column: str
    descending: bool = False
    nulls_first: bool = False


def code(column: Column, order: Order) -> U64:
    """Order-preserving codes, comparable between batches of one column type.

    Exact for booleans, integers, floats, dates, times and decimals of up to 18
    digits; a prefix for strings (8 bytes), wider decimals, structs (the first
    child) and lists (the first element).

    >>> code(pa.array(["b", None, "a"]), Order("s")).argsort().tolist()
    [2, 0, 1]
    """
    if isinstance(column, pa.ChunkedArray):
        parts = [code(chunk, order) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
    array = _decoded(column)
    values = _codes(array)
    return _with_nulls(values, array, order)


def ranks(column: Column, order: Order) -> U64:
    """Codes that are exact within this batch: equal only for equal values."""
    array = _decoded(_one_array(column))
    if not _is_exact(array.type):
        return _dense_ranks(array, order)
    values = _codes(array)
    if not array.null_count:
        return ~values if order.descending else values
    reserved = np.uint64(0) if order.nulls_first else _MAX
    clash = ~reserved if order.descending else reserved
    if (values[~nulls(array)] == clash).any():
        return _dense_ranks(array, order)
    return _with_nulls(values, array, order)


def sort_indices(columns: Sequence[Column], orders: Sequence[Order]) -> I64:
    """The rows in sorted order, ties in their original order.

    Each further column is read only for rows that tie in the columns before it.

    >>> sort_indices([pa.array([2, 1, 2])], [Order("n", descending=True)]).tolist()
    [0, 2, 1]
    """
    if not columns or len(columns) != len(orders):
        raise InvalidError(
            "a sort needs one order for each of its columns",
            detail=f"{len(columns)} columns, {len(orders)} orders",
            hint="pass at least one column, and one order per column",
        )
    arrays = [_decoded(_one_array(column)) for column in columns]
    length = len(arrays[0])
    for place, array in enumerate(arrays):
        if len(array) != length:
            raise InvalidError(
                "sort columns must have the same length",
                detail=f"column {place} has {len(array)} rows, expected {length}",
                hint="pass columns of one table",
            )
    if len(arrays) == 1 and _is_exact(arrays[0].type):
        return _sort_exact(arrays[0], orders[0])
    digits = (digit for array, order in zip(arrays, orders, strict=True) for digit in _digits(array, order))
    return _sort(length, digits)[0]


# ---------------------------------------------------------------- codes


def _one_array(column: Column) -> pa.Array:
    """The column as one array; strings become large strings, so that offsets cannot overflow."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if not column.num_chunks:
        return pa.array([], type=column.type)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        column = column.cast(pa.large_binary())
    return column.combine_chunks()


def _decoded(array: pa.Array) -> pa.Array:
    array = plain(array)
    return plain(array.dictionary_decode()) if pa.types.is_dictionary(array.type) else array


def _is_exact(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= 18)
    return not (is_bytes(kind) or pa.types.is_nested(kind))


def _codes(array: pa.Array) -> U64:
    """Ascending codes of the values; undefined under a NULL."""
    kind = array.type
    t = pa.types
    if t.is_null(kind):
        return np.zeros(len(array), dtype=np.uint64)
    if t.is_uint64(kind):
        return fixed(array, np.uint64).copy()  # a copy that the caller owns, as for every other type
    if t.is_integer(kind):
        return _signed(fixed(array, kind.to_pandas_dtype()))
    if t.is_floating(kind):
        return _floats(fixed(array, kind.to_pandas_dtype()))
    if t.is_boolean(kind):
        return _signed(fixed(array.cast(pa.uint8()), np.uint8))
    if t.is_date32(kind) or t.is_time32(kind):
        return _signed(fixed(array, np.int32))
    if t.is_date64(kind) or t.is_time64(kind) or t.is_timestamp(kind) or t.is_duration(kind):
        return _signed(fixed(array, np.int64))
    if t.is_decimal(kind):
        words = limbs(array)
        return _signed(words[0].view(np.int64)) if kind.precision <= 18 else _wide_decimals(words)
    if is_bytes(kind):
        data, starts, lengths = strings(array)
        return _word(data, starts, lengths, 0)
    if t.is_struct(kind):
        if not kind.num_fields:
            return np.zeros(len(array), dtype=np.uint64)
        return code(array.field(0), _NESTED)
    if is_list(kind):
        inner, starts, lengths = elements(array)
        return _element(code(inner, _NESTED), starts, lengths, 0)
    raise InvalidError(
        f"a column of type {kind} has no order",
        hint="cast it to a number, a string, a time, or a struct or list of these",
    )


def _with_nulls(values: U64, array: pa.Array, order: Order) -> U64:
    if order.descending:
        values = ~values
    out = np.maximum(values, _ONE) if order.nulls_first else np.minimum(values, _MAX - _ONE)
    if array.null_count:
        out[nulls(array)] = 0 if order.nulls_first else _MAX
    return out


def _signed(values: npt.NDArray[Any]) -> U64:
    return values.astype(np.int64, copy=False).view(np.uint64) ^ _TOP


def _floats(values: npt.NDArray[Any]) -> U64:
    """IEEE bits in ascending order: negatives reversed, below the positives."""
    bits = doubles(values).view(np.uint64)
    return bits ^ ((bits.view(np.int64) >> 63).view(np.uint64) | _TOP)


def _wide_decimals(words: Sequence[U64]) -> U64:
    """Codes of wide decimals: exact within +-2**62, beyond that an exponent and the 54 bits after
    the leading one, so that small values in a wide type still get a full code."""
    negative = words[-1] >= _TOP
    low = words[0].view(np.int64)
    fits = (low >= -(1 << 62)) & (low < (1 << 62))
    for word in words[1:]:
        fits &= word == (low >> 63).view(np.uint64)
    out = _signed(low)
    far = np.flatnonzero(~fits)
    if far.size:
        # ~x instead of -x: one lower, in the same order, and never overflows.
        flip = np.where(negative[far], _MAX, np.uint64(0))
        exponent, fraction = _leading_bits([word[far] ^ flip for word in words])
        size = np.uint64(1 << 62) + ((exponent - np.uint64(62)) << np.uint64(54)) + fraction
        out[far] = _TOP + size
        below = far[negative[far]]
        out[below] = ~out[below]
    return out


def _leading_bits(words: Sequence[U64]) -> tuple[U64, U64]:
    """The position of the leading one of a wide number, and the 54 bits after it."""
    top = np.zeros_like(words[0])  # the words from the leading one on
    under = np.zeros_like(words[0])
    exponent = np.zeros_like(words[0])
    for place, word in enumerate(words):
        filled = word != 0
        under = np.where(filled, words[place - 1] if place else np.uint64(0), under)
        top = np.where(filled, word, top)
        exponent = np.where(filled, np.uint64(64 * place + 63), exponent)
    for step in (32, 16, 8, 4, 2, 1):
        shift = np.uint64(step)
        small = top < (_ONE << np.uint64(64 - step))
        top = np.where(small, top << shift | under >> np.uint64(64 - step), top)
        under = np.where(small, under << shift, under)
        exponent = np.where(small, exponent - shift, exponent)
    return exponent, (top ^ _TOP) >> np.uint64(9)


# ---------------------------------------------------------------- digits


_NESTED = Order("", nulls_first=False)


def _digits(array: pa.Array, order: Order) -> Iterator[_Digit]:
    """Digits that together sort the rows exactly, most significant first."""
    is_null = nulls(array) if array.null_count else None
    if not _is_exact(array.type):
        yield lambda rows: _some(code, array, rows, order)
        for digit in _value_digits(array):
            yield partial(_refined, digit, is_null, order.descending)
    elif is_null is None:
        yield lambda rows: _some(ranks, array, rows, order)
    else:
        yield lambda rows: (is_null[rows] != order.nulls_first).astype(np.uint64)
        values = _codes(array)
        yield partial(_refined, _pick(values), is_null, order.descending)


def _refined(digit: _Digit, is_null: Mask | None, descending: bool, rows: I64) -> U64:
    """A further digit; NULLs are equal, whatever the values under them."""
    out = digit(rows)
    if descending:
        out = ~out
    if is_null is not None:
        out[is_null[rows]] = 0
    return out


def _some(codes: Callable[[pa.Array, Order], U64], array: pa.Array, rows: I64, order: Order) -> U64:
    """Codes of some rows, without coding the complete array for a few of them."""
    if 2 * len(rows) >= len(array):
        return codes(array, order)[rows]
    return codes(array.take(pa.array(rows)), order)


def _value_digits(array: pa.Array) -> Iterator[_Digit]:
    """Digits that distinguish values with the same code; NULLs are already sorted."""
    kind = array.type
    t = pa.types
    if t.is_decimal(kind):
        words = limbs(array)
        yield lambda rows: words[-1][rows] ^ _TOP
        for word in reversed(words[:-1]):
            yield _pick(word)
    elif is_bytes(kind):
        yield from _string_digits(array)
    elif t.is_struct(kind):
        for place in range(kind.num_fields):
            yield from _digits(_decoded(array.field(place)), _NESTED)
    else:
        inner, starts, lengths = elements(array)
        values = ranks(inner, _NESTED)
        for at in range(int(lengths.max(initial=0))):
            yield _pick(_element(values, starts, lengths, at))
        yield _pick(lengths.view(np.uint64))


def _pick(values: U64) -> _Digit:
    return lambda rows: values[rows]


def _string_digits(array: pa.Array) -> Iterator[_Digit]:
    data, starts, lengths = strings(array)
    longest = int(lengths.max(initial=0))
    for at in range(8, min(longest, 8 * _WORDS), 8):
        yield partial(_word_of_rows, data, starts, lengths, at)
    if longest > 8 * _WORDS:
        comparable = array.cast(pa.large_binary())
        yield lambda rows: _arrow_ranks(comparable.take(pa.array(rows)))
    else:
        # Equal except for zero bytes at the end: the shorter one is lower.
        yield lambda rows: lengths[rows].astype(np.uint64)


def _word_of_rows(data: Bytes, starts: Ints, lengths: Ints, at: int, rows: I64) -> U64:
    return _word(data, starts[rows], lengths[rows], at)


def _arrow_ranks(array: pa.Array) -> U64:
    """Ranks of strings by comparing them completely; undefined for NULL."""
    encoded = array.dictionary_encode()
    place = np.zeros(max(len(encoded.dictionary), 1), dtype=np.uint64)
    sorted_rows = pc.array_sort_indices(encoded.dictionary).to_numpy()
    place[sorted_rows] = np.arange(len(sorted_rows), dtype=np.uint64)
    rows: I64 = encoded.indices.fill_null(0).to_numpy()
    return place[rows]


def _word(data: Bytes, starts: Ints, lengths: Ints, at: int) -> U64:
    """Eight bytes of each string from byte `at`, as numbers in the order of the
    bytes, padded with zeros."""
    out = np.empty(len(starts), dtype=np.uint64)
    if data.size < 8:
        data = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    everywhere = np.ndarray((data.size - 7,), dtype=np.uint64, buffer=data.data, strides=(1,))
    for first in range(0, out.size, tuning.CACHE_BLOCK_ROWS):
        rows = slice(first, first + tuning.CACHE_BLOCK_ROWS)
        wanted = starts[rows].astype(np.int64) + at
        places = np.minimum(wanted, data.size - 8)  # do not read beyond the data: read before it and shift
        words = everywhere[places] >> ((wanted - places) << 3).view(np.uint64)
        words &= _HEAD.take(np.clip(lengths[rows] - at, 0, 8))
        words.byteswap(inplace=True)
        out[rows] = words
    return out


def _element(values: U64, starts: I64, lengths: I64, at: int) -> U64:
    """The code of one element of each list; a list without that element is below every element."""
    out = np.zeros(len(starts), dtype=np.uint64)
    rows = np.flatnonzero(lengths > at)
    out[rows] = values[starts[rows] + at]
    return out


# ---------------------------------------------------------------- sorting


def _dense_ranks(array: pa.Array, order: Order) -> U64:
    if buffers.is_repeated(array):
        encoded = array.dictionary_encode()
        of_values = _dense_ranks(encoded.dictionary, order)  # from 1 on, so that 0 is free
        if not array.null_count:
            return of_values.take(fixed(encoded.indices, np.int32))
        of_values = np.append(of_values, np.uint64(0) if order.nulls_first else _MAX)
        places: npt.NDArray[np.int32] = encoded.indices.fill_null(len(of_values) - 1).to_numpy()
        return of_values.take(places)
    rows, fresh = _sort(len(array), _digits(array, order))
    out = np.empty(len(array), dtype=np.uint64)
    out[rows] = np.cumsum(fresh, dtype=np.uint64)
    return out


def _sort_exact(array: pa.Array, order: Order) -> I64:
    """Sort one column with exact codes: NULLs are set aside, the rest is one sort."""
    values = ~_codes(array) if order.descending else _codes(array)
    if not array.null_count:
        return stable_argsort(values)
    is_null = nulls(array)
    absent, present = np.flatnonzero(is_null), np.flatnonzero(~is_null)
    present = present[stable_argsort(values[present])]
    return np.concatenate([absent, present] if order.nulls_first else [present, absent])


def _sort(length: int, digits: Iterator[_Digit]) -> tuple[I64, Mask]:
    """The stable order of the rows by their digits, and where a new value starts."""
    order = np.arange(length, dtype=np.int64)
    fresh = np.zeros(length, dtype=np.bool_)
    fresh[:1] = True
    tied = np.arange(length, dtype=np.int64)  # positions whose group has other rows
    for digit in digits:
        if tied.size < 2:
            break
        rows = order[tied]
        codes = digit(rows)
        permutation = stable_argsort(codes)
        if tied.size < length or fresh[1:].any():
            group = np.cumsum(fresh[tied], dtype=np.uint64)
            permutation = permutation[stable_argsort(group[permutation])]
        order[tied] = rows[permutation]
        codes = codes[permutation]
        fresh[tied[1:]] |= codes[1:] != codes[:-1]
        loose = ~fresh
        loose[:-1] |= loose[1:]
        tied = np.flatnonzero(loose)
    return order, fresh


def stable_argsort(codes: U64) -> I64:
    """Stable argsort with row numbers packed into the low bits of the codes: sorting plain numbers
    is several times faster than an indirect stable sort.  If both do not fit into one word, the
    codes are packed without their lowest bits, and the resulting errors are corrected."""
    if codes.size < 2:
        return np.arange(codes.size, dtype=np.int64)
    low, top = codes.min(), codes.max()
    if low == top:
        return np.arange(codes.size, dtype=np.int64)
    room = 64 - (codes.size - 1).bit_length()
    cut = np.uint64(max(0, int(top - low).bit_length() - room))
    codes = codes - low
    rows = _packed_argsort(codes >> cut, room)
    if not cut:
        return rows
    sorted_codes = codes[rows]
    wrong = sorted_codes[1:] < sorted_codes[:-1]
    if not wrong.any():
        return rows
    heads = sorted_codes >> cut
    group = np.cumsum(np.append(False, heads[1:] != heads[:-1]))
    mixed = np.zeros(int(group[-1]) + 1, dtype=np.bool_)
    mixed[group[1:][wrong]] = True
    places = np.flatnonzero(mixed[group])
    if places.size * 4 > codes.size:  # not rare: sort by the low bits, then by the high ones
        rows = _packed_argsort(codes & ((_ONE << cut) - _ONE), room)
        return rows[_packed_argsort((codes >> cut)[rows], room)]
    rows[places] = rows[places][np.argsort(sorted_codes[places], kind="stable")]
    return rows


def _packed_argsort(codes: U64, room: int) -> I64:
    packed = codes << np.uint64(64 - room)
    packed |= np.arange(codes.size, dtype=np.uint64)
    packed.sort()
    packed &= (_ONE << np.uint64(64 - room)) - _ONE
    return packed.view(np.int64)


def argsort_numbers(numbers: I64) -> I64:
    """The stable order of numbers from 0 on; few or nearly sorted numbers are sorted by numpy itself."""
    if (
        numbers.size < tuning.NUMPY_SORT_ROWS_MAX
        or np.count_nonzero(numbers[1:] < numbers[:-1]) <= tuning.MERGED_RUNS_MAX
    ):
        order: I64 = np.argsort(numbers, kind="stable")
        return order
    return stable_argsort(numbers.view(np.uint64))


def distinct(numbers: I64) -> I64:
    """The distinct numbers, ascending; by position in an array if they are dense.

    >>> distinct(np.array([7, -2, 7, 5])).tolist()
    [-2, 5, 7]
    """
    if not numbers.size:
        return numbers
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= 4 * numbers.size:
        return np.unique(numbers)
    there = np.zeros(high - low + 1, np.bool_)
    there[numbers - low] = True
    return np.flatnonzero(there) + low


def argsort_runs(codes: U64) -> I64:
    """Any sorted order; rows in a few sorted runs, as senders produce them, are merged."""
    order: I64 = np.argsort(codes, kind="stable" if in_stretches(codes) else None)
    return order


def in_stretches(codes: U64) -> bool:
    """Are these a few sorted runs, which are merged faster than sorted?"""
    return bool(np.count_nonzero(codes[1:] < codes[:-1]) <= tuning.MERGED_RUNS_MAX)
