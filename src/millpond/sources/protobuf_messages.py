"""Protobuf messages, described by a file descriptor set.

`protoc --include_imports --descriptor_set_out=FILE` writes it.  With a schema registry, a message begins with
the id of its schema and the place of the message in it; both are passed over, and the descriptor decides.
Fields that are not set are their defaults, or NULL if they can be absent (`optional`, messages).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.sources.python_values import table_of
from millpond.sources.schema_registry import split_message


class ProtobufMessages:
    def __init__(self, schema: pa.Schema, descriptor: bytes, message: str, framed: bool) -> None:
        self._schema = schema
        self._framed = framed
        self._descriptor, self._message = descriptor, message
        known = {f.name for f in message_class(descriptor, message).DESCRIPTOR.fields}
        if missing := [f.name for f in schema if f.name not in known]:
            raise InvalidError(
                f"message {message!r} has no field {missing[0]!r}",
                detail=f"fields are {', '.join(sorted(known))}",
            )

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
            rows.append({f.name: _value(found, f.name) for f in self._schema})
            numbers.append(number)
        table, _, wrong = table_of(rows, self._schema)
        bad.update({numbers[n]: reason for n, reason in wrong})
        return [table], sorted(bad.items())


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


def _value(message: Any, name: str) -> Any:
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.has_presence and not message.HasField(name):
        return None
    return _plain(getattr(message, name), field)


def _plain(value: Any, field: Any) -> Any:
    if field.is_repeated:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            return [(k, _single(v, inner)) for k, v in value.items()]
        return [_single(item, field) for item in value]
    return _single(value, field)


def _single(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return value.ToDatetime()
    return {inner.name: _value(value, inner.name) for inner in field.message_type.fields}


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
