"""Rows as Protobuf messages: of a schema that is made from the columns, or of a user's descriptor.

In a schema of our own every plain field is `optional`, so NULL is a field that is absent.
A list that is NULL is written as an empty list, and one that contains NULL cannot be written.
The number of a field never changes: the newest schema of the registry says which numbers are taken.
"""

from __future__ import annotations

import datetime
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.plan.sink_settings import EPOCH, NUMBER, OPERATION
from millpond.sinks.json_rows import json_value
from millpond.sinks.row_encoding import ChangeId, Shape, Unencodable
from millpond.sources.protobuf_messages import message_class
from millpond.sources.schema_registry import HEADER

Encoder = Callable[[Any], bytes]
LOG = {OPERATION: pa.string(), EPOCH: pa.int64(), NUMBER: pa.int64()}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TOP_FIELD = re.compile(r"^  [^ ].* (\w+) = (\d+);$", re.MULTILINE)  # of a text that `proto_schema` made
_RESERVED = re.compile(r"^  reserved (\d+);$", re.MULTILINE)
_FIRST_MESSAGE = b"\0"  # the place of a message in its schema
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def columns_of(schema: pa.Schema, shape: Shape) -> dict[str, pa.DataType]:
    return {f.name: f.type for f in schema} | (LOG if shape == "logged" else {})


def proto_schema(columns: Mapping[str, pa.DataType], name: str, before: str | None = None) -> str:
    """The text of a .proto file; `before` is the schema that the subject has.

    >>> print(proto_schema({"k": pa.int64()}, "Row"))
    syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    message Row {
      optional int64 k = 1;
    }
    """
    lines = ['syntax = "proto3";', 'import "google/protobuf/timestamp.proto";', f"message {name} {{"]
    inner: list[str] = []
    numbers = field_numbers(columns, before)
    lines += [_line(column, kind, numbers[column], inner) for column, kind in columns.items()]
    lines += [f"  reserved {number};" for number in sorted(_taken(before) - set(numbers.values()))]
    return "\n".join([*lines, *("  " + line for line in inner), "}"])


def field_numbers(columns: Mapping[str, Any], before: str | None) -> dict[str, int]:
    """The numbers of columns: those that they have in `before`, and new ones for others.

    >>> field_numbers({"a": None, "c": None}, "  optional int64 a = 4;\\n  optional int64 b = 7;")
    {'a': 4, 'c': 8}
    """
    known = {found[1]: int(found[2]) for found in _TOP_FIELD.finditer(before or "")}
    last = max(_taken(before), default=0)
    found = {}
    for column in columns:
        if column not in known:
            last += 1
        found[column] = known.get(column, last)
    return found


def _taken(before: str | None) -> set[int]:
    used = {int(found[2]) for found in _TOP_FIELD.finditer(before or "")}
    return used | {int(found[1]) for found in _RESERVED.finditer(before or "")}


class ProtobufEncoding:
    """Messages of a schema that `proto_schema` made."""

    def __init__(self, schema: pa.Schema, numbers: Mapping[str, int], schema_id: int) -> None:
        self._columns = [(f.name, _field(f.type, numbers[f.name])) for f in schema]
        self._log = {name: _field(kind, numbers[name]) for name, kind in LOG.items() if name in numbers}
        self._head = HEADER.pack(0, schema_id) + _FIRST_MESSAGE

    def encoded(self, rows: pa.Table) -> list[bytes | Unencodable]:
        columns = [
            [_tried(encode, value, name) for value in one_chunk(rows.column(name)).to_pylist()]
            for name, encode in self._columns
        ]
        return [_joined(parts) for parts in zip(*columns, strict=True)]

    def row(self, row: bytes) -> bytes:
        return self._head + row

    def logged(self, row: bytes, operation: str, change: ChangeId) -> bytes:
        values = {OPERATION: operation, EPOCH: change.epoch, NUMBER: change.number}
        return self._head + row + b"".join(encode(values[name]) for name, encode in self._log.items())

    def event(self, before: bytes | None, after: bytes | None, operation: str, change: ChangeId) -> bytes:
        raise NotImplementedError  # refused when the sink is defined


class DescribedEncoding:
    """Messages of a user's descriptor, without the header of a registry."""

    def __init__(self, schema: pa.Schema, shape: Shape, descriptor: bytes, message: str) -> None:
        self._made = message_class(descriptor, message)
        self._names = schema.names
        known = {f.name for f in self._made.DESCRIPTOR.fields}
        if missing := [name for name in columns_of(schema, shape) if name not in known]:
            raise InvalidError(
                f"message {message!r} has no field {missing[0]!r}",
                detail=f"fields are {', '.join(sorted(known))}",
                hint="name the columns of the view like the fields",
            )

    def encoded(self, rows: pa.Table) -> list[bytes | Unencodable]:
        return [self._bytes(row) for row in rows.select(self._names).to_pylist()]

    def _bytes(self, row: Mapping[str, Any]) -> bytes | Unencodable:
        from google.protobuf import json_format

        given = {name: _described(value) for name, value in row.items() if value is not None}
        try:
            found: bytes = json_format.ParseDict(given, self._made()).SerializeToString(deterministic=True)
        except json_format.ParseError as error:
            return Unencodable(str(error))
        return found

    def row(self, row: bytes) -> bytes:
        return row

    def logged(self, row: bytes, operation: str, change: ChangeId) -> bytes:
        more = self._bytes({OPERATION: operation, EPOCH: change.epoch, NUMBER: change.number})
        assert isinstance(more, bytes)
        return row + more

    def event(self, before: bytes | None, after: bytes | None, operation: str, change: ChangeId) -> bytes:
        raise NotImplementedError  # refused when the sink is defined


def _described(value: Any) -> Any:
    """A value as JSON of Protobuf, in which times have a zone."""
    if isinstance(value, datetime.datetime):
        at = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return at.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, list):
        return [_described(item) for item in value]
    if isinstance(value, dict):
        return {name: _described(item) for name, item in value.items() if item is not None}
    return json_value(value)


def _tried(encode: Encoder, value: Any, name: str) -> bytes | Unencodable:
    if value is None:
        return b""
    try:
        return encode(value)
    except ValueError as error:
        return Unencodable(f"column {name!r}: {error}")


def _joined(parts: tuple[bytes | Unencodable, ...]) -> bytes | Unencodable:
    wrong = next((part for part in parts if isinstance(part, Unencodable)), None)
    return wrong or b"".join(part for part in parts if isinstance(part, bytes))


# -- the text of a schema -------------------------------------------------------


def _line(name: str, kind: pa.DataType, number: int, inner: list[str]) -> str:
    t = pa.types
    if not _NAME.match(name):
        raise InvalidError(
            f"column {name!r} cannot be a field of Protobuf",
            detail="names have letters, digits and _, and do not begin with a digit",
            hint="give the column another name in the view: SELECT … AS name",
        )
    kind = _unwrapped(kind)
    if t.is_map(kind):
        key = _named(kind.key_type, name, inner)
        if key in ("float", "double", "bytes") or "." in key or key[0].isupper():
            raise InvalidError(f"column {name!r}: keys of a map in Protobuf are text or whole numbers")
        return f"  map<{key}, {_named(kind.item_type, name, inner)}> {name} = {number};"
    if _is_list(kind):
        return f"  repeated {_named(kind.value_type, name, inner)} {name} = {number};"
    found = _named(kind, name, inner)
    plain = "" if t.is_struct(kind) or t.is_timestamp(kind) else "optional "
    return f"  {plain}{found} {name} = {number};"


def _named(kind: pa.DataType, column: str, inner: list[str]) -> str:
    """The name of a type; the messages of structs are added to `inner`."""
    t = pa.types
    kind = _unwrapped(kind)
    if t.is_struct(kind):
        name = f"{column[:1].upper()}{column[1:]}Struct"
        deeper: list[str] = []
        lines = [_line(f.name, f.type, n + 1, deeper) for n, f in enumerate(kind)]
        inner += [f"message {name} {{", *lines, *("  " + line for line in deeper), "}"]
        return name
    if t.is_timestamp(kind):
        return "google.protobuf.Timestamp"
    if t.is_decimal(kind) or t.is_date(kind) or t.is_time(kind):
        return "string"
    found = _SIMPLE.get(str(kind)) or ("bytes" if t.is_fixed_size_binary(kind) else None)
    if found is None:
        raise InvalidError(
            f"column {column!r} of type {kind} cannot be written as Protobuf", hint="cast it to text"
        )
    return found


_SIMPLE = {
    **{"bool": "bool", "float": "float", "halffloat": "float", "double": "double"},
    **{"int64": "int64", "uint32": "uint32", "uint64": "uint64"},
    **dict.fromkeys(("int8", "int16", "int32"), "int32"),
    **dict.fromkeys(("uint8", "uint16"), "uint32"),
    **dict.fromkeys(("string", "large_string"), "string"),
    **dict.fromkeys(("binary", "large_binary"), "bytes"),
}


def _is_list(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind))


def _unwrapped(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


# -- bytes ----------------------------------------------------------------------


def _field(kind: pa.DataType, number: int) -> Encoder:
    """How a value, not NULL, is written as a field with this number."""
    t = pa.types
    kind = _unwrapped(kind)
    if t.is_map(kind):
        key, item = _field(kind.key_type, 1), _field(kind.item_type, 2)
        pairs = _repeated(lambda pair: _present(key, pair[0]) + _present(item, pair[1]))
        return lambda value: b"".join(_tag(number, _LENGTH) + _sized(entry) for entry in pairs(value))
    if _is_list(kind):
        wire, encode = _value(kind.value_type)
        items = _repeated(encode)
        if wire == _LENGTH:
            return lambda value: b"".join(_tag(number, wire) + item for item in items(value))
        return lambda value: _tag(number, _LENGTH) + _sized(b"".join(items(value))) if len(value) else b""
    wire, encode = _value(kind)
    tag = _tag(number, wire)
    return lambda value: tag + encode(value)


def _repeated(encode: Encoder) -> Callable[[Any], list[bytes]]:
    def encoded(values: Any) -> list[bytes]:
        if any(value is None for value in values):
            raise ValueError("a list with NULL cannot be written as Protobuf")
        return [encode(value) for value in values]

    return encoded


def _present(encode: Encoder, value: Any) -> bytes:
    if value is None:
        raise ValueError("a map with NULL cannot be written as Protobuf")
    return encode(value)


def _value(kind: pa.DataType) -> tuple[int, Encoder]:
    """The wire type of a value, and its bytes without the tag."""
    t = pa.types
    kind = _unwrapped(kind)
    if t.is_struct(kind):
        fields = [(f.name, _field(f.type, n + 1)) for n, f in enumerate(kind)]
        return _LENGTH, lambda value: _sized(
            b"".join(encode(value[name]) for name, encode in fields if value[name] is not None)
        )
    if t.is_timestamp(kind):
        return _LENGTH, lambda value: _sized(_timestamp(value))
    if t.is_boolean(kind):
        return _VARINT, lambda value: b"\1" if value else b"\0"
    if t.is_integer(kind):
        return _VARINT, _varint
    if t.is_float64(kind):
        return _FIXED64, struct.Struct("<d").pack
    if t.is_floating(kind):
        return _FIXED32, struct.Struct("<f").pack
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return _LENGTH, _sized
    if t.is_date(kind) or t.is_time(kind):
        return _LENGTH, lambda value: _sized(value.isoformat().encode())
    return _LENGTH, lambda value: _sized(str(value).encode())


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """
    >>> _varint(300).hex(), _varint(-1).hex()
    ('ac02', 'ffffffffffffffffff01')
    """
    rest = number & 0xFFFFFFFFFFFFFFFF
    if rest < 0x80:
        return bytes((rest,))
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _timestamp(value: datetime.datetime) -> bytes:
    """A google.protobuf.Timestamp."""
    zone = None if value.tzinfo is None else datetime.UTC
    micros = (value - datetime.datetime(1970, 1, 1, tzinfo=zone)) // datetime.timedelta(microseconds=1)
    seconds, rest = divmod(micros, 1_000_000)
    parts = [_tag(1, _VARINT) + _varint(seconds)] if seconds else []
    return b"".join([*parts, _tag(2, _VARINT) + _varint(rest * 1000)] if rest else parts)
