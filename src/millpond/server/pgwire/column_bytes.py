"""Columns of bytes: the parts from which rows are put together, all rows of a column at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Ints = np.ndarray


def fixed(data: np.ndarray) -> pa.Array:
    """One value of equal width for each row; `data` has a row of bytes, or an item, for each."""
    data = np.ascontiguousarray(data)
    count = len(data)
    width = data.nbytes // count if count else 0
    offsets = np.arange(count + 1, dtype=np.int64) * width
    return of_offsets(offsets, pa.py_buffer(data.tobytes()))


def of_offsets(offsets: Ints, data: pa.Buffer) -> pa.Array:
    """Values that follow each other in a buffer."""
    made = pa.py_buffer(np.ascontiguousarray(offsets, np.int64).tobytes())
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, made, data])


def big_endian(values: np.ndarray, kind: str) -> pa.Array:
    """Numbers in network order; `kind` is a numpy type such as ">i4"."""
    return fixed(values.astype(kind))


def lengths(values: pa.Array) -> Ints:
    """The number of bytes of each value; 0 for NULL."""
    return np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64)


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    """The parts of each row, one after the other; none of them is NULL."""
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def with_length(values: pa.Array) -> tuple[pa.Array, pa.Array, Ints]:
    """The length of each value in four bytes, -1 for NULL; the value; and the bytes that both take."""
    size = lengths(values)
    if values.null_count:
        valid = np.asarray(values.is_valid())
        shown = np.where(valid, size, -1)
        values = pc.fill_null(values, pa.scalar(b"", values.type))
    else:
        shown = size
    return big_endian(shown, ">i4"), values, size + 4


def data_of(values: pa.Array) -> bytes:
    """The bytes of all values, one after the other; none of them is NULL."""
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return b""
    found = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return memoryview(data)[int(found[0]) : int(found[-1])].tobytes()


def offsets_of(values: pa.Array) -> Ints:
    """Where each value begins and ends in the buffer, for a large_binary array."""
    return np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
