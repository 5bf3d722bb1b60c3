"""Packs rows into numbers: the values of several columns in one word, if they fit.

Law: two rows have the same code exactly if they are equal, and the row can be
restored from the code.  Integers and times count from their least value, repeated
strings are dictionary indexes; a time column that equals another one shifted by a
constant uses no bits.  Codes can be sorted, compared and made
distinct many times faster than rows; they are valid only within their batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import tuning
from millpond.buffers import Column, fixed, is_one_value, is_repeated, nulls
from millpond.identity import one_chunk

U64 = npt.NDArray[np.uint64]

_WORD = 2**64


@dataclass(frozen=True)
class _Part:
    """One column in the codes: its bits, and how to convert them back to values."""

    kind: pa.DataType
    shift: int
    bits: int
    nullable: bool  # if so, code 0 is NULL
    low: int = 0
    values: pa.Array | None = None  # a dictionary

    def column(self, codes: U64) -> pa.Array:
        found = (codes >> np.uint64(self.shift)) & np.uint64((1 << self.bits) - 1)
        gone = found == 0 if self.nullable else None
        if self.nullable:
            found -= np.uint64(1)  # for NULL too, where the value does not matter
        if self.values is not None:
            places = pa.array(found.view(np.int64), mask=gone)
            return pa.DictionaryArray.from_arrays(places, self.values)
        found += np.uint64(self.low % _WORD)
        whole = np.dtype(f"i{self.kind.bit_width // 8}")
        return pa.array(found.view(np.int64).astype(whole, copy=False), mask=gone).view(self.kind)


@dataclass(frozen=True)
class PackedRows:
    codes: U64
    bits: int  # of a code that are used, from the lowest
    parts: tuple[_Part, ...]

    def columns(self, codes: U64) -> list[pa.Array]:
        """The rows with these codes; strings as dictionaries, which hash fastest."""
        return [part.column(codes) for part in self.parts]


def pack(columns: Sequence[Column], bits_max: int = 64) -> PackedRows | None:
    """Rows of canonical columns as codes of at most `bits_max` bits, if they fit and it pays off.

    >>> packed = pack([pa.array([7, 9, 7] * 1000), pa.array(["a", "b", None] * 1000)])
    >>> [column.to_pylist() for column in packed.columns(np.unique(packed.codes))]
    [[7, 7, 9], [None, 'a', 'b']]
    """
    if not columns or len(columns[0]) < tuning.DICTIONARY_ROWS_MIN:
        return None
    codes: U64 | None = None
    parts: list[_Part] = []
    at = 0
    for index, column in enumerate(columns):
        moved = _moved(column, columns[:index], parts)
        if moved is not None:
            parts.append(moved)
            continue
        found = _coded(column, at)
        if found is None:
            return None
        part, mine = found
        at += part.bits
        if at > bits_max:
            return None
        parts.append(part)
        if mine is None:
            continue
        if part.shift:
            mine <<= np.uint64(part.shift)
        if codes is None:
            codes = mine
        else:
            codes |= mine
    if codes is None:
        codes = np.zeros(len(columns[0]), np.uint64)
    return PackedRows(codes, at, tuple(parts))


def _moved(column: Column, before: Sequence[Column], parts: Sequence[_Part]) -> _Part | None:
    """A time column that is another one shifted by a constant, like the end of a window: reuses its bits."""
    if not pa.types.is_timestamp(column.type) or column.null_count:
        return None
    for other, part in zip(before, parts, strict=True):
        if other.type != column.type or not part.bits or part.nullable:
            continue
        apart = column[0].value - other[0].value
        if column[-1].value - other[-1].value != apart:
            continue
        mine, its = (fixed(one_chunk(one), np.int64) for one in (column, other))
        if abs(apart) < _WORD // 4 and bool((mine - its == apart).all()):
            return replace(part, low=part.low + apart)
    return None


def _coded(column: Column, shift: int) -> tuple[_Part, U64 | None] | None:
    """A column's place in the codes, and its bits of each code; None for bits of a constant column."""
    if pa.types.is_dictionary(column.type) or isinstance(column.type, pa.BaseExtensionType):
        column = one_chunk(column)
    kind, t = column.type, pa.types
    nullable = bool(column.null_count)
    if t.is_string(kind) or t.is_large_string(kind):
        if is_one_value(column):
            return _Part(kind, shift, 0, False, values=one_chunk(column.slice(0, 1))), None
        array = one_chunk(column)
        if not is_repeated(array):
            return None
        encoded = array.dictionary_encode()
        places = fixed(encoded.indices, np.int32).astype(np.uint64)
        most = len(encoded.dictionary) - 1
        part = _Part(kind, shift, (most + nullable).bit_length(), nullable, values=encoded.dictionary)
    elif (t.is_integer(kind) or t.is_temporal(kind)) and t.is_primitive(kind) and kind != pa.uint64():
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        whole = _integer(kind)
        ends = pc.min_max(pa.chunked_array([chunk.view(whole) for chunk in chunks], whole))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is None:
            low = high = 0
        bits = (high - low + nullable).bit_length()
        if bits > 63:
            return None
        part = _Part(kind, shift, bits, nullable, low)
        if not bits:
            return part, None
        array = one_chunk(column)
        values = fixed(array, whole.to_pandas_dtype()).astype(np.int64, copy=False)
        places = values.view(np.uint64) - np.uint64(low % _WORD)
    else:
        return None
    if nullable:
        places += np.uint64(1)
        places[nulls(array)] = 0
    return part, places


def _integer(kind: pa.DataType) -> pa.DataType:
    """The signed integer type of the same width; unsigned types are unchanged."""
    if pa.types.is_unsigned_integer(kind):
        return kind
    return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
