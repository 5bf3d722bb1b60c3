"""The binary format: columns as PostgreSQL sends their values."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.kernels.postgres.time_fields import read_timetz
from millpond.server.pgwire.column_bytes import (
    big_endian,
    data_of,
    fixed,
    joined,
    of_offsets,
    offsets_of,
    with_length,
)
from millpond.sql.copy.text_format import flattened, infinities, text_column
from millpond.sql.pg_catalog import pg_types as pg
from millpond.sql.pg_catalog.pg_types import ColumnType
from millpond.sql.result import bignum

EPOCH_US = 946_684_800_000_000  # PostgreSQL counts from 2000
EPOCH_DAYS = 10_957
_WIDTHS = {pg.INT2: ">i2", pg.INT4: ">i4", pg.INT8: ">i8", pg.FLOAT4: ">f4", pg.FLOAT8: ">f8", pg.OID: ">u4"}
_INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("ns", "<i8")])
_SENT_INTERVAL = np.dtype([("us", ">i8"), ("days", ">i4"), ("months", ">i4")])
_PLAIN = pa.large_binary()


def binary_column(values: pa.Array, kind: str, shown: ColumnType) -> pa.Array:
    """The bytes of each value; NULL stays NULL."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if shown.is_array:
        return _array(values, kind, shown)
    made = _values(values, kind, shown)
    if made.null_count == values.null_count:
        return made
    return pc.if_else(values.is_valid(), made, pa.scalar(None, _PLAIN))


def _values(values: pa.Array, kind: str, shown: ColumnType) -> pa.Array:
    """Fixed-width types lose their NULLs here; `binary_column` restores them."""
    match shown.type:
        case pg.INT2 | pg.INT4 | pg.INT8 | pg.FLOAT4 | pg.FLOAT8 | pg.OID:
            return big_endian(_numbers(values), _WIDTHS[shown.type])
        case pg.BOOL:
            return fixed(np.asarray(pc.cast(pc.fill_null(values, False), pa.uint8())))
        case pg.TIMESTAMP | pg.TIMESTAMPTZ:
            return big_endian(_since_2000(values, _numbers(_as_us(values)) - EPOCH_US), ">i8")
        case pg.DATE:
            return big_endian(_since_2000(values, _numbers(pc.cast(values, pa.int32())) - EPOCH_DAYS), ">i4")
        case pg.TIME:
            return big_endian(_numbers(_as_us(values)), ">i8")
        case pg.TIMETZ:
            times = [(0, 0) if v is None else read_timetz(v) for v in values.to_pylist()]
            us, east = np.array(times, np.int64).reshape(-1, 2).T
            return joined([big_endian(us, ">i8"), big_endian(-east, ">i4")])
        case pg.BYTEA:
            return pc.cast(values, _PLAIN)
        case pg.UUID:
            return _uuid(values)
        case pg.INTERVAL if not pa.types.is_string(values.type):
            return _interval(values)
        case pg.NUMERIC:
            return pa.array([None if v is None else numeric(v) for v in _exact(values)], _PLAIN)
        case pg.VARBIT:
            return pa.array([None if v is None else _bits(v) for v in values.to_pylist()], _PLAIN)
    return text_column(values, kind, shown)


def _numbers(values: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(values, 0) if values.null_count else values)


def _since_2000(values: pa.Array, moved: np.ndarray) -> np.ndarray:
    """Days or instants that count from 2000; the infinities are the ends of the range."""
    found = infinities(values)
    if found is None:
        return moved
    after, before = (np.asarray(pc.fill_null(one, False)) for one in found)
    ends = np.iinfo(moved.dtype)
    return np.where(after, ends.max, np.where(before, ends.min, moved)).astype(moved.dtype)


def _as_us(values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type) and values.type.unit != "us":
        values = pc.cast(values, pa.timestamp("us", values.type.tz), safe=False)
    elif pa.types.is_time64(values.type) and values.type.unit != "us":
        values = pc.cast(values, pa.time64("us"), safe=False)
    return pc.cast(values, pa.int64())


def _uuid(values: pa.Array) -> pa.Array:
    """Texts of 36 signs each become 16 bytes each."""
    filled = pc.fill_null(values, "00000000-0000-0000-0000-000000000000")
    packed = pc.cast(pc.replace_substring(filled, "-", ""), _PLAIN)
    return fixed(np.frombuffer(bytes.fromhex(data_of(packed).decode()), np.uint8).reshape(-1, 16))


def _interval(values: pa.Array) -> pa.Array:
    found = np.frombuffer(values.buffers()[1], _INTERVAL)[values.offset : values.offset + len(values)]
    made = np.empty(len(values), _SENT_INTERVAL)
    made["us"], made["days"], made["months"] = found["ns"] // 1000, found["days"], found["months"]
    return fixed(made)


def _bits(data: bytes) -> bytes:
    from_left = "".join(f"{byte:08b}" for byte in data[1:])[data[0] :]
    size = len(from_left)
    padded = from_left.ljust(-(-size // 8) * 8, "0")
    return struct.pack("!i", size) + int(padded or "0", 2).to_bytes(len(padded) // 8, "big")


def _exact(values: pa.Array) -> list[Any]:
    if isinstance(values.type, pa.BaseExtensionType):
        return [None if v is None else bignum(v) for v in values.storage.to_pylist()]
    found: list[Any] = values.to_pylist()
    return found


def numeric(value: Decimal | int | float) -> bytes:
    """A number in base 10,000.

    >>> numeric(Decimal("-12345.6")).hex()
    '0003000140000001000109291770'
    """
    number = value if isinstance(value, Decimal) else Decimal(value)
    if not number.is_finite():
        sign = 0xC000 if number.is_nan() else 0xD000 if number > 0 else 0xF000
        return struct.pack("!hhHh", 0, 0, sign, 0)
    negative, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    text = "".join(map(str, digits)) + "0" * max(0, exponent)
    whole, part = (text[:-scale] or "0", text[-scale:].rjust(scale, "0")) if scale else (text, "")
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    part = part.ljust(-(-len(part) // 4) * 4, "0")
    groups = [int(whole[n : n + 4]) for n in range(0, len(whole), 4)]
    weight = len(groups) - 1
    groups += [int(part[n : n + 4]) for n in range(0, len(part), 4)]
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    if not groups:
        weight = 0
    sign = 0x4000 if negative and groups else 0
    return struct.pack(f"!hhHh{len(groups)}h", len(groups), weight, sign, scale, *groups)


def _array(values: pa.Array, kind: str, shown: ColumnType) -> pa.Array:
    """Lists: dimensions, whether there are NULLs, the type; then each element with its length."""
    offsets, inner, valid = flattened(values)
    size, data, _ = with_length(binary_column(inner, kind[: kind.rindex("[")], ColumnType(shown.type)))
    elements = joined([size, data])
    bodies = of_offsets(offsets_of(elements)[offsets], elements.buffers()[2])
    counts, nulls = np.diff(offsets), int(inner.null_count > 0)
    full = np.empty(len(counts), [("d", ">i4"), ("n", ">i4"), ("o", ">i4"), ("c", ">i4"), ("l", ">i4")])
    full["d"], full["n"], full["o"], full["c"], full["l"] = 1, nulls, shown.type.oid, counts, 1
    made = joined([fixed(full), bodies])
    empty = pa.scalar(struct.pack("!iii", 0, 0, shown.type.oid), _PLAIN)
    made = pc.if_else(pa.array(counts > 0), made, empty)
    return made if valid is None else pc.if_else(valid, made, pa.scalar(None, _PLAIN))
