"""Rows as Avro records, in the form of a schema registry.

Every field may be null, so columns can be added later.
Times without a time zone are written as times in UTC.
"""

from __future__ import annotations

import datetime
import json
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.plan.sink_settings import EPOCH, NUMBER, OPERATION
from millpond.sinks.row_encoding import ChangeId, Shape, Unencodable
from millpond.sources.schema_registry import HEADER

Encoder = Callable[[Any], bytes]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NULL, _VALUE = b"\0", b"\2"  # the branches of the union [null, type]
_DAY = datetime.date(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_U64_DIGITS = 20


def avro_schema(schema: pa.Schema, shape: Shape, name: str = "Row") -> str:
    """The schema of messages, as JSON.

    >>> avro_schema(pa.schema([("k", pa.int64())]), "row")
    '{"type":"record","name":"Row","fields":[{"name":"k","type":["null","long"],"default":null}]}'
    """
    fields = [_field(f.name, f.type, name) for f in schema]
    if shape == "logged":
        fields += [_plain(OPERATION, "string"), _plain(EPOCH, "long"), _plain(NUMBER, "long")]
    row = {"type": "record", "name": name, "fields": fields}
    if shape != "event":
        return json.dumps(row, separators=(",", ":"))
    texts = [_plain(part, "string") for part in ("connector", "name", "table")]
    source = {
        "type": "record",
        "name": "Source",
        "fields": [*texts, _plain("epoch", "long"), _plain("n", "long")],
    }
    envelope = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", name], "default": None},
        {"name": "source", "type": source},
        _plain("op", "string"),
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    return json.dumps({"type": "record", "name": "Envelope", "fields": envelope}, separators=(",", ":"))


class AvroEncoding:
    def __init__(self, schema: pa.Schema, schema_id: int) -> None:
        self._columns = [(f.name, _encoder(f.type)) for f in schema]
        self._head = HEADER.pack(0, schema_id)

    def encoded(self, rows: pa.Table) -> list[bytes | Unencodable]:
        columns = []
        for name, encode in self._columns:
            values = _physical(one_chunk(rows.column(name))).to_pylist()
            columns.append([_NULL if v is None else _VALUE + encode(v) for v in values])
        return [b"".join(parts) for parts in zip(*columns, strict=True)]

    def row(self, row: bytes) -> bytes:
        return self._head + row

    def logged(self, row: bytes, operation: str, change: ChangeId) -> bytes:
        return self._head + row + _text(operation) + _long(change.epoch) + _long(change.number)

    def event(self, before: bytes | None, after: bytes | None, operation: str, change: ChangeId) -> bytes:
        old, new = (_NULL if row is None else _VALUE + row for row in (before, after))
        source = _text("millpond") + _text(change.pond) + _text(change.sink)
        source += _long(change.epoch) + _long(change.number)
        return self._head + old + new + source + _text(operation) + _NULL


def _plain(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _field(name: str, kind: pa.DataType, path: str) -> dict[str, Any]:
    if not _NAME.match(name):
        raise InvalidError(
            f"column {name!r} cannot be a field of Avro",
            detail="names have letters, digits and _, and do not begin with a digit",
            hint="give the column another name in the view: SELECT … AS name",
        )
    return {"name": name, "type": ["null", _type(kind, f"{path}_{name}", name)], "default": None}


def _type(kind: pa.DataType, path: str, column: str) -> Any:
    """The Avro type of an Arrow type; `path` names records inside the row."""
    t = pa.types
    kind = _unwrapped(kind)
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, f"{path}_item", column)]}
    if t.is_struct(kind):
        return {"type": "record", "name": path, "fields": [_field(f.name, f.type, path) for f in kind]}
    if t.is_map(kind):
        if not t.is_string(_unwrapped(kind.key_type)):
            raise InvalidError(f"column {column!r}: keys of a map in Avro are text", detail=f"got {kind}")
        return {"type": "map", "values": ["null", _type(kind.item_type, f"{path}_value", column)]}
    if t.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if t.is_uint64(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": _U64_DIGITS, "scale": 0}
    if t.is_timestamp(kind):
        names = {"ns": "timestamp-nanos", "ms": "timestamp-millis"}
        return {"type": "long", "logicalType": names.get(kind.unit, "timestamp-micros")}
    if t.is_time(kind):
        return {"type": "long", "logicalType": "time-micros"}
    if t.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    simple = _SIMPLE.get(str(kind)) or ("bytes" if t.is_fixed_size_binary(kind) else None)
    if simple is None:
        raise InvalidError(
            f"column {column!r} of type {kind} cannot be written as Avro", hint="cast it to text"
        )
    return simple


_SIMPLE = {
    **{"bool": "boolean", "float": "float", "halffloat": "float", "double": "double"},
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), "int"),
    **dict.fromkeys(("int64", "uint32"), "long"),
    **dict.fromkeys(("string", "large_string"), "string"),
    **dict.fromkeys(("binary", "large_binary"), "bytes"),
}


def _unwrapped(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _physical(array: pa.Array) -> pa.Array:
    """Times as the numbers that Avro stores."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        unit = "us" if kind.unit == "s" else kind.unit
        return array.cast(pa.timestamp(unit, kind.tz)).cast(pa.int64())
    if pa.types.is_time(kind):
        return array.cast(pa.time64("ns" if kind.unit == "ns" else "us"), safe=False).cast(pa.int64())
    return array.cast(pa.date32()).cast(pa.int32()) if pa.types.is_date(kind) else array


def _encoder(kind: pa.DataType) -> Encoder:
    """How a value, not null, is written."""
    t = pa.types
    kind = _unwrapped(kind)
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return _blocks(_nullable(kind.value_type))
    if t.is_map(kind):
        item = _nullable(kind.item_type)
        return _blocks(lambda pair: _text(pair[0]) + item(pair[1]))
    if t.is_struct(kind):
        parts = [(f.name, _nullable(f.type)) for f in kind]
        return lambda value: b"".join(encode(value[name]) for name, encode in parts)
    if t.is_decimal(kind):
        return lambda value: _bytes(_unscaled(value, kind.scale))
    if t.is_uint64(kind):
        return lambda value: _bytes(_signed(value))
    if t.is_boolean(kind):
        return lambda value: b"\1" if value else b"\0"
    if t.is_float64(kind):
        return struct.Struct("<d").pack
    if t.is_floating(kind):
        return struct.Struct("<f").pack
    if t.is_string(kind) or t.is_large_string(kind):
        return _text
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return _bytes
    if t.is_time(kind) and kind.unit == "ns":
        return lambda value: _long(_number(value) // (1000 if isinstance(value, int) else 1))
    if t.is_timestamp(kind) and kind.unit in ("ms", "ns"):
        return lambda value: _long(_in_unit(value, kind.unit))
    return lambda value: _long(_number(value))


def _in_unit(value: Any, unit: str) -> int:
    if isinstance(value, int):
        return value
    micros = _number(value)
    return micros // 1000 if unit == "ms" else micros * 1000


def _number(value: Any) -> int:
    """A whole number, or the number by which Avro writes a time inside another value."""
    if isinstance(value, int):
        return value
    if isinstance(value, datetime.datetime):
        zone = None if value.tzinfo is None else datetime.UTC
        return (value - datetime.datetime(1970, 1, 1, tzinfo=zone)) // _MICROSECOND
    if isinstance(value, datetime.date):
        return (value - _DAY).days
    at = datetime.timedelta(
        hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
    )
    return at // _MICROSECOND


def _nullable(kind: pa.DataType) -> Encoder:
    encode = _encoder(kind)
    return lambda value: _NULL if value is None else _VALUE + encode(value)


def _blocks(encode: Encoder) -> Encoder:
    """An array or a map: one block with a count, then an empty one."""

    def encoded(values: Any) -> bytes:
        return _long(len(values)) + b"".join(map(encode, values)) + _NULL if len(values) else _NULL

    return encoded


def _long(number: int) -> bytes:
    """
    >>> _long(-1).hex(), _long(64).hex(), _long(-(2**63)).hex()
    ('01', '8001', 'ffffffffffffffffff01')
    """
    rest = number << 1 if number >= 0 else ~(number << 1)
    if rest < 0x80:
        return bytes((rest,))
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())


def _unscaled(value: Decimal, scale: int) -> bytes:
    """The digits of a decimal, as a whole number in two's complement.

    >>> _unscaled(Decimal("2.22"), 2).hex(), _unscaled(Decimal("-1"), 2).hex()
    ('00de', '9c')
    """
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)) or "0") * 10 ** (scale + exponent)
    return _signed(-number if sign else number)


def _signed(number: int) -> bytes:
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
