"""What Kafka says about a message beside its value: key, headers, timestamp, partition, offset, topic.

Law 9: a key or header that a column of text cannot hold makes its message an error row, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError

_HEADER = "header:"  # before the name of one header
_TEXT_OR_BYTES: tuple[pa.DataType, ...] = (pa.string(), pa.binary())
_HEADER_MAP = pa.map_(pa.string(), pa.binary())
_HEADER_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

FIELDS: dict[str, tuple[pa.DataType, ...]] = {  # the types that a column can have
    "partition": (pa.int32(), pa.int64(), pa.string()),
    "offset": (pa.int64(), pa.string()),
    "timestamp": tuple(pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC")),
    "key": _TEXT_OR_BYTES,
    "headers": (_HEADER_MAP, _HEADER_LIST),
    "topic": (pa.string(),),
}
# Columns with these names are not in the message, whatever the source says about its columns.
RESERVED = {f"kafka_{field}": field for field in FIELDS}


def fields_of(schema: pa.Schema, declared: Mapping[str, str]) -> dict[str, str]:
    """The metadata in columns of a source; raises InvalidError if a column cannot hold it.

    >>> schema = pa.schema([("a", pa.int64()), ("kafka_offset", pa.int64()), ("k", pa.string())])
    >>> fields_of(schema, {"k": "key"})
    {'kafka_offset': 'offset', 'k': 'key'}
    """
    for name, field in declared.items():
        if name not in schema.names:
            raise InvalidError(f"there is no column {name!r} for the {field} of messages")
        if field not in FIELDS and not field.removeprefix(_HEADER) != field:
            raise InvalidError(
                f"messages of Kafka have no metadata {field!r}",
                detail=f"column {name!r} should have it",
                hint=f"one of {', '.join(FIELDS)}, or {_HEADER}NAME for one header",
            )
    known = {**RESERVED, **declared}
    found = {name: known[name] for name in schema.names if name in known}
    for name, field in found.items():
        kinds, kind = FIELDS.get(field, _TEXT_OR_BYTES), schema.field(name).type
        if not any(_same(kind, one) for one in kinds):
            wanted = " or ".join(map(str, kinds))
            raise InvalidError(f"column {name!r} is {wanted}", detail=f"got {kind}")
    return found


def misfits(messages: Sequence[Any], schema: pa.Schema, fields: Mapping[str, str]) -> dict[int, str]:
    """By number: why a message does not fit columns of text."""
    texts = [(n, f) for n, f in fields.items() if _is_bytes(f) and pa.types.is_string(schema.field(n).type)]
    found: dict[int, str] = {}
    for name, field in texts:
        for number, message in enumerate(messages):
            data = _bytes(message, field)
            try:
                _ = None if data is None else data.decode()
            except UnicodeDecodeError as error:
                found.setdefault(number, f"column {name!r}: {field} is not text: {error}")
    return found


def columns_of(
    messages: Sequence[Any], schema: pa.Schema, fields: Mapping[str, str]
) -> Iterable[tuple[str, pa.Array]]:
    """The columns of messages that fit them."""
    for name, field in fields.items():
        kind = schema.field(name).type
        yield name, _column([value_of(message, field) for message in messages], field, kind)


def value_of(message: Any, field: str) -> Any:
    """
    >>> class Message:
    ...     headers = lambda self: [("a", b"1"), ("a", b"2")]
    >>> value_of(Message(), "headers"), value_of(Message(), "header:a"), value_of(Message(), "header:b")
    ([('a', b'1'), ('a', b'2')], b'2', None)
    """
    if field == "partition":
        return message.partition()
    if field == "offset":
        return message.offset()
    if field == "timestamp":
        kind, at_ms = message.timestamp()
        return at_ms if kind else None
    if field == "topic":
        return message.topic()
    if field == "headers":
        return message.headers() or []
    return _bytes(message, field)


def _is_bytes(field: str) -> bool:
    return field == "key" or field.startswith(_HEADER)


def _bytes(message: Any, field: str) -> bytes | None:
    """The key, or the last header of a name."""
    if field == "key":
        key: bytes | None = message.key()
        return key
    name = field.removeprefix(_HEADER)
    return next((value for key, value in reversed(message.headers() or []) if key == name), None)


def _column(values: list[Any], field: str, kind: pa.DataType) -> pa.Array:
    if _is_bytes(field):
        return pa.array(values, pa.binary()).cast(kind)
    if field == "timestamp":
        return pa.array(values, pa.timestamp("ms", kind.tz)).cast(kind)
    if field == "headers":
        if pa.types.is_map(kind):  # a name has one value: the last one
            return pa.array([list(dict(pairs).items()) for pairs in values], kind)
        return pa.array([[{"key": k, "value": v} for k, v in pairs] for pairs in values], kind)
    if pa.types.is_string(kind) and field != "topic":
        values = [str(value) for value in values]
    return pa.array(values, kind)


def _same(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Equal, whatever the items of lists are called."""
    if pa.types.is_list(kind) and pa.types.is_list(wanted):
        return bool(kind.value_type == wanted.value_type)
    return bool(kind == wanted)
