"""Reads Arrow buffers as numpy arrays, without copying the values.

Law: the result covers exactly the rows of the array, whatever its offset.  Under a NULL, a fixed-width value
is undefined, and a string or list has length zero.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import tuning

Column: TypeAlias = pa.Array | pa.ChunkedArray
Bytes: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]
U64: TypeAlias = npt.NDArray[np.uint64]
I64: TypeAlias = npt.NDArray[np.int64]
Ints: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]

if sys.byteorder != "little":
    raise ImportError("millpond reads Arrow buffers in place and needs a little-endian machine")


class BufferList:
    """A file object that keeps the buffers written to it; Arrow writes to it without a copy."""

    closed = False

    def __init__(self) -> None:
        self.buffers: list[bytes | pa.Buffer] = []
        self.size = 0

    def write(self, data: bytes | pa.Buffer) -> int:
        self.buffers.append(data)
        length = len(memoryview(data))
        self.size += length
        return length

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def plain(array: pa.Array) -> pa.Array:
    """The same values without a wrapping type (extension, run ends, string views)."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return plain(array.storage)
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(array))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    return array


def is_bytes(kind: pa.DataType) -> bool:
    """Strings and binaries: values that are their bytes (views are not `plain`)."""
    t = pa.types
    variable = t.is_string(kind) or t.is_large_string(kind) or t.is_binary(kind) or t.is_large_binary(kind)
    return bool(variable or t.is_fixed_size_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    """Lists and maps; a map is a list of its entries."""
    t = pa.types
    some = t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind) or t.is_map(kind)
    return bool(some or _is_list_view(kind))


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def unsliced(column: Column) -> Column:
    """The same values with offset zero in their buffers, for structs inside structs.

    DuckDB 2.0 loses the offset of a slice between two structs, and refuses such rows.
    """
    if isinstance(column, pa.ChunkedArray):
        if not _is_struct_of_nested(column.type):
            return column
        return pa.chunked_array([unsliced(chunk) for chunk in column.chunks], column.type)
    if _is_struct_of_nested(column.type) and column.offset:
        # concatenating one array would return it unchanged
        return pa.concat_arrays([column, column.slice(0, 0)])
    return column


def _is_struct_of_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) and any(pa.types.is_nested(field.type) for field in kind)


def is_repeated(array: pa.Array) -> bool:
    """Do strings seem to repeat so often that a dictionary is worth making?"""
    if len(array) < tuning.DICTIONARY_ROWS_MIN or not (
        pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    ):
        return False
    sample = array.slice(0, tuning.DICTIONARY_SAMPLE_ROWS)
    return bool(4 * pc.count_distinct(sample).as_py() <= 3 * len(sample))


def is_one_value(column: Column) -> bool:
    """Do all rows have the same value, none of them NULL?  Usually three rows are enough to say no."""
    length = len(column)
    if not length or column.null_count:
        return False
    first = column[0]
    return (
        first == column[length // 2] == column[length - 1] and pc.all(pc.equal(column, first)).as_py() is True
    )


def nulls(array: pa.Array) -> Mask:
    mask: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def fixed(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values of a fixed-width array."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.empty(0, dtype=dtype)
    return np.frombuffer(data, dtype=dtype, count=array.offset + len(array))[array.offset :]


def doubles(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """A copy of floats as doubles with one zero and one NaN (positive, quiet)."""
    with np.errstate(invalid="ignore"):  # ignore signalling NaNs
        out = values.astype(np.float64)
        out += 0.0  # -0.0 + 0.0 is 0.0
    out[np.isnan(out)] = np.nan
    return out


def limbs(array: pa.Array) -> list[U64]:
    """The 64-bit words of decimals in two's complement, lowest first; for 32-bit
    decimals their values as one word."""
    width = array.type.byte_width
    if width == 4:
        return [fixed(array, np.int32).astype(np.int64).view(np.uint64)]
    count = width // 8
    data = array.buffers()[1]
    if data is None or not len(array):
        return [np.empty(0, dtype=np.uint64) for _ in range(count)]
    words = np.frombuffer(data, dtype=np.uint64, count=(array.offset + len(array)) * count)
    return [words[array.offset * count + place :: count] for place in range(count)]


def strings(array: pa.Array) -> tuple[Bytes, Ints, Ints]:
    """Data, and the start and length of each string in it; starts ascend."""
    kind = array.type
    if not len(array):
        none = np.empty(0, dtype=np.int64)
        return _bytes(None), none, none
    starts: Ints
    lengths: Ints
    if pa.types.is_fixed_size_binary(kind):
        data = array.buffers()[1]
        starts, lengths = _even(array, kind.byte_width)
        starts += array.offset * kind.byte_width
    else:
        _, packed, data = array.buffers()
        wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        dtype: Any = np.int64 if wide else np.int32
        offsets = np.frombuffer(packed, dtype=dtype, count=array.offset + len(array) + 1)[array.offset :]
        starts, lengths = offsets[:-1], np.diff(offsets)
    if array.null_count:
        lengths[nulls(array)] = 0
    return _bytes(data), starts, lengths


def elements(array: pa.Array) -> tuple[pa.Array, I64, I64]:
    """The elements of all lists, and the start and length of each list in them."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        inner = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        starts, lengths = _even(array, kind.list_size)
    elif _is_list_view(kind):
        inner = array.values
        starts = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        lengths = array.sizes.to_numpy(zero_copy_only=False).astype(np.int64)
    else:
        offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        first, last = (int(offsets[0]), int(offsets[-1])) if offsets.size else (0, 0)
        inner = array.values.slice(first, last - first)
        starts, lengths = offsets[:-1] - first, np.diff(offsets)
    if array.null_count:
        lengths[nulls(array)] = 0
    return inner, starts, lengths


def _bytes(data: pa.Buffer | None) -> Bytes:
    return np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)


def _even(array: pa.Array, size: int) -> tuple[I64, I64]:
    length = len(array)
    return np.arange(length, dtype=np.int64) * size, np.full(length, size, dtype=np.int64)
