"""Single values of a column, read straight from its buffers.

Law: a cell is the value that Arrow has at that row.  Whole numbers, dates and instants in microseconds are an
int, texts and binary values their bytes, decimals a mantissa and a scale; NULL is None.  A value of any other
type is an array with one row.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

Cell = Any
ReadCell = Callable[[int], Cell]
_LAYOUTS = {
    pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q", pa.uint8(): "B", pa.uint16(): "H",
    pa.uint32(): "I", pa.uint64(): "Q", pa.float32(): "f", pa.float64(): "d", pa.date32(): "i",
}  # fmt: skip
_DAY_ZERO = datetime.date(1970, 1, 1).toordinal()


class ScaledInt(NamedTuple):
    """A decimal: its mantissa, and how many of its digits are behind the point."""

    mantissa: int
    scale: int


def cell_of(value: Any, kind: pa.DataType) -> Cell:
    """The cell of a Python value.

    >>> cell_of("é", pa.string()), cell_of(datetime.date(1970, 1, 3), pa.date32()), cell_of(7, pa.int8())
    (b'\\xc3\\xa9', 2, 7)
    """
    if type(value) is int and kind in _LAYOUTS:
        return value
    if type(value) is str and pa.types.is_string(kind):
        return value.encode()
    if type(value) is datetime.date and pa.types.is_date32(kind):
        return value.toordinal() - _DAY_ZERO
    return cell_reader(pa.array([value], kind))(0)


def cell_reader(column: pa.Array) -> ReadCell:
    """A function from a row of a column to its cell.

    >>> read = cell_reader(pa.array(["a", None, "bc"]))
    >>> [read(row) for row in range(3)]
    [b'a', None, b'bc']
    """
    read = _reader(column)
    if read is None:
        return lambda row: column.slice(row, 1)
    if not column.null_count:
        return read
    valid, first = memoryview(column.buffers()[0]).cast("B"), column.offset

    def or_none(row: int) -> Cell:
        at = first + row
        return read(row) if valid[at >> 3] >> (at & 7) & 1 else None

    return or_none


def _reader(column: pa.Array) -> ReadCell | None:
    """How to read rows that are not NULL; None if there is no quick way."""
    kind, buffers, first = column.type, column.buffers(), column.offset
    layout = _LAYOUTS.get(kind, "q" if pa.types.is_timestamp(kind) and kind.unit == "us" else None)
    if layout is not None:
        return _numbers(_as_numbers(buffers[1], layout), first)
    if pa.types.is_boolean(kind):
        bits = memoryview(buffers[1]).cast("B")
        return lambda row: bool(bits[first + row >> 3] >> (first + row & 7) & 1)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _texts(buffers, first)
    if pa.types.is_decimal128(kind):
        return _decimals(memoryview(buffers[1]).cast("B"), first, kind.scale)
    return None


def _as_numbers(buffer: pa.Buffer, layout: Any) -> memoryview:
    return memoryview(buffer).cast("B").cast(layout)


def _numbers(values: memoryview, first: int) -> ReadCell:
    return (lambda row: values[first + row]) if first else values.__getitem__


def _texts(buffers: list[pa.Buffer], first: int) -> ReadCell:
    ends = memoryview(buffers[1]).cast("B").cast("i")
    data = memoryview(buffers[2] if buffers[2] is not None else b"").cast("B")
    return lambda row: bytes(data[ends[first + row] : ends[first + row + 1]])


def _decimals(data: memoryview, first: int, scale: int) -> ReadCell:
    def read(row: int) -> ScaledInt:
        at = (first + row) * 16
        return ScaledInt(int.from_bytes(data[at : at + 16], "little", signed=True), scale)

    return read
