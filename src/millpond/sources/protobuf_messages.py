"""Protobuf messages, described by a file descriptor set.

`protoc --include_imports --descriptor_set_out=FILE` writes it.  With a schema registry, a message begins with
the id of its schema and the place of the message in it; both are passed over, and the descriptor decides.
Fields that are not set are their defaults, or NULL if they can be absent (`optional`, messages).
Values that Google's types wrap are plain values; in a column of text, a message is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.sources.message_values import Form, exact_time
from millpond.sources.python_values import table_of
from millpond.sources.schema_registry import split_message

_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class ProtobufMessages:
    def __init__(self, schema: pa.Schema, descriptor: bytes, message: str, framed: bool) -> None:
        self._schema = schema
        self._framed = framed
        self._descriptor, self._message = descriptor, message
        _check_fields(message, message_class(descriptor, message).DESCRIPTOR, schema, "")

    def decode(self, values: Sequence[bytes | None]) -> tuple[list[pa.Table], list[tuple[int, str]]]:
        made = message_class(self._descriptor, self._message)
        bad: dict[int, str] = {}
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        for number, value in enumerate(values):
            if value is None:
                bad[number] = "there is no value"
                continue
            try:
                found = made.FromString(_unframed(value) if self._framed else value)
            except Exception as error:  # of the library's own kinds
                bad[number] = f"it cannot be read as {self._message}: {error}"
                continue
            try:
                rows.append({f.name: _column_value(found, f) for f in self._schema})
            except (ValueError, TypeError, ArithmeticError) as error:
                bad[number] = str(error)
                continue
            numbers.append(number)
        table, _, wrong = table_of(rows, self._schema)
        bad.update({numbers[n]: reason for n, reason in wrong})
        return [table], sorted(bad.items())


def _check_fields(message: str, descriptor: Any, columns: Iterable[pa.Field], inside: str) -> None:
    """Refuse columns, and fields of structs, that the message does not have."""
    for column in columns:
        field = descriptor.fields_by_name.get(column.name)
        if field is None:
            raise InvalidError(
                f"message {message!r} has no field {inside + column.name!r}",
                detail=f"fields are {', '.join(sorted(descriptor.fields_by_name))}",
            )
        kind = column.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind) and field.message_type is not None:
            _check_fields(message, field.message_type, kind, f"{inside}{column.name}.")


def _column_value(message: Any, column: pa.Field) -> Any:
    value = _value(message, column.name, column.type)
    try:
        return exact_time(value, column.type, _form(message.DESCRIPTOR.fields_by_name[column.name]))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"column {column.name!r}: {error}") from error


def _form(field: Any) -> Form:
    is_time = field.message_type is not None and field.message_type.full_name == _TIMESTAMP
    return Form("NanoTimestamp") if is_time else Form()


def _unframed(value: bytes) -> bytes:
    """The message behind the id of its schema and the numbers of its place in it."""
    _, rest = split_message(value)
    count, at = _varint(rest, 0)
    for _ in range(count):
        _, at = _varint(rest, at)
    return rest[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag form, and what follows it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at


def _value(message: Any, name: str, kind: pa.DataType) -> Any:
    """A field as a value of Python; a Timestamp is a number of nanoseconds."""
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.has_presence and not message.HasField(name):
        return None
    value = getattr(message, name)
    if not field.is_repeated:
        return _single(value, field, kind)
    inner = kind.value_type if pa.types.is_list(kind) else kind
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        item = field.message_type.fields_by_name["value"]
        of_items = kind.item_type if pa.types.is_map(kind) else kind
        return [(k, _nested(v, item, of_items)) for k, v in value.items()]
    return [_nested(item, field, inner) for item in value]


def _nested(value: Any, field: Any, kind: pa.DataType) -> Any:
    found = _single(value, field, kind)
    return exact_time(found, kind, _form(field))


def _single(value: Any, field: Any, kind: pa.DataType) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return value.seconds * 10**9 + value.nanos
    if name in _WRAPPERS and not pa.types.is_struct(kind):
        return value.value
    if pa.types.is_string(kind):
        return _json(value)
    if not pa.types.is_struct(kind):
        raise TypeError(f"it is a message {name}, and {kind} is wanted")
    return {inner.name: _nested_value(value, inner) for inner in kind}


def _nested_value(message: Any, column: pa.Field) -> Any:
    value = _value(message, column.name, column.type)
    return exact_time(value, column.type, _form(message.DESCRIPTOR.fields_by_name[column.name]))


def _json(message: Any) -> str:
    from google.protobuf import json_format

    made = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)


@lru_cache(maxsize=64)
def message_class(descriptor: bytes, message: str) -> Any:
    """The class of a message, from a file descriptor set."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise InvalidError(
            "the Protobuf library is not installed",
            detail=str(error),
            hint="pip install 'millpond[protobuf]'",
        ) from error
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except Exception as error:  # of the library's own kinds
        raise InvalidError(
            f"the descriptor set has no usable message {message!r}",
            detail=str(error),
            hint="protoc --include_imports --descriptor_set_out=FILE file.proto; message is its full name",
        ) from error
