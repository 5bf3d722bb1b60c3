"""Avro messages with the schema of a registry.

All messages of one schema are decoded at once: their bytes become one block of an Avro file, which Polars
reads column by column.  Law 9: behind each message stands a number of our own, as one more field.  If the
numbers come out right, every message had exactly the bytes of its schema; otherwise the messages are decoded
one by one, and the bad ones are reported.
"""

from __future__ import annotations

import io
import json
import random
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.sources.message_values import Form, avro_forms, exact_time
from millpond.sources.python_values import table_of
from millpond.sources.schema_fit import misfit
from millpond.sources.schema_registry import UnknownSchemaError, schema_by_id, split_message

_MARK = "millpond_mark"
_DOUBLE = Struct("<d")
_SYNC = bytes(range(16))
_PRIMITIVE = ("boolean", "int", "long", "float", "double", "string", "bytes")
_LOGICAL = ("date", "timestamp-millis", "timestamp-micros", None)


class AvroMessages:
    def __init__(self, schema: pa.Schema, registry: str) -> None:
        self._schema = schema
        self._registry = registry

    def decode(self, values: Sequence[bytes | None]) -> tuple[list[pa.Table], list[tuple[int, str]]]:
        bad: dict[int, str] = {}
        groups: dict[int, list[int]] = {}
        datums: dict[int, bytes] = {}
        for number, value in enumerate(values):
            if value is None:
                bad[number] = "there is no value"
                continue
            try:
                schema_id, datums[number] = split_message(value)
            except ValueError as error:
                bad[number] = str(error)
                continue
            groups.setdefault(schema_id, []).append(number)
        parts: list[pa.Table] = []
        order: list[int] = []
        for schema_id, numbers in groups.items():
            try:
                text = schema_by_id(self._registry, schema_id)
            except UnknownSchemaError as error:
                bad.update(dict.fromkeys(numbers, str(error)))
                continue
            table, good, wrong = decoded(text, [datums[n] for n in numbers], self._schema)
            bad.update({numbers[n]: reason for n, reason in wrong})
            parts.append(table)
            order += [numbers[n] for n in good]
        if not parts:
            return [], sorted(bad.items())
        found = pa.concat_tables(parts)
        if order != sorted(order):
            found = found.take(pa.array(sorted(range(len(order)), key=order.__getitem__)))
        return [found], sorted(bad.items())


def decoded(
    text: str, datums: Sequence[bytes], schema: pa.Schema
) -> tuple[pa.Table, list[int], list[tuple[int, str]]]:
    """The rows of some datums of one Avro schema, which of the datums they are, and the bad ones."""
    wanted = json.loads(text)
    if is_flat(text):
        fast = _by_block(wanted, datums, schema)
        if fast is not None:
            return fast, list(range(len(datums))), []
    rows, bad = read_each(text, datums)
    fit, unfit = column_values(rows, schema, text)
    bad |= unfit
    numbers = [n for n in range(len(datums)) if n not in bad]
    table, good, wrong = table_of([fit[n] for n in numbers], schema)
    bad.update({numbers[n]: reason for n, reason in wrong})
    return table, [numbers[n] for n in good], sorted(bad.items())


def column_values(
    rows: Mapping[int, Any], schema: pa.Schema, text: str
) -> tuple[dict[int, Any], dict[int, str]]:
    """Records as rows of the declared columns, by number, and why others do not fit."""
    forms = avro_forms(text, "")
    found: dict[int, Any] = {}
    bad: dict[int, str] = {}
    for number, row in rows.items():
        try:
            found[number] = {
                f.name: _column_value(row.get(f.name), f, forms.get(f.name, Form())) for f in schema
            }
        except (ValueError, TypeError, ArithmeticError) as error:
            bad[number] = str(error)
    return found, bad


def _column_value(value: Any, field: pa.Field, form: Form) -> Any:
    if isinstance(value, uuid.UUID):
        return str(value)
    try:
        return exact_time(value, field.type, form)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"column {field.name!r}: {value!r} is not {field.type}: {error}") from error


def read_each(text: str, datums: Sequence[bytes]) -> tuple[dict[int, Any], dict[int, str]]:
    """Each datum as a Python value, and why the others are bad."""
    fastavro = library("fastavro")
    parsed = _parsed(text)
    rows: dict[int, Any] = {}
    bad: dict[int, str] = {}
    for number, datum in enumerate(datums):
        stream = io.BytesIO(datum)
        try:
            value = fastavro.schemaless_reader(stream, parsed, None)
        except Exception as error:  # of many kinds; a bad message must not stop the others
            bad[number] = f"it is not of its schema: {error or type(error).__name__}"
            continue
        if stream.tell() != len(datum):
            bad[number] = f"{len(datum) - stream.tell()} bytes are left behind the value"
        elif not isinstance(value, dict):
            bad[number] = "its schema is not a record"
        else:
            rows[number] = value
    return rows, bad


def _by_block(wanted: Any, datums: Sequence[bytes], schema: pa.Schema) -> pa.Table | None:
    """All datums at once; None if that does not work."""
    first = random.random()
    marked = {**wanted, "fields": [*wanted["fields"], {"name": _MARK, "type": "double"}]}
    body = b"".join(d + _DOUBLE.pack(first + n) for n, d in enumerate(datums))
    found = read_file(container(json.dumps(marked), len(datums), body))
    numbers = [first + n for n in range(len(datums))]
    if found is None or found.num_rows != len(datums) or found.column(_MARK).to_pylist() != numbers:
        return None
    return fitted(found, schema)


def read_file(data: bytes) -> pa.Table | None:
    """An Avro file of a flat schema; None if it cannot be read at once."""
    polars = library("polars")
    try:
        return polars.read_avro(io.BytesIO(data)).to_arrow()
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError):
        return None  # some bytes are not of the schema


def fitted(found: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """The rows as declared columns, NULL for those that are missing; None if a value does not fit."""
    columns = []
    for field in schema:
        if field.name not in found.column_names:
            columns.append(pa.nulls(found.num_rows, field.type))
            continue
        column = found.column(field.name)
        if pa.types.is_timestamp(field.type) and field.type.tz is None and pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp(column.type.unit))  # an instant, in UTC
        if misfit(pa.schema([(field.name, column.type)]), pa.schema([field])) is not None:
            return None
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowInvalid:
            return None
    return pa.table(columns, schema=schema)


def container(schema: str, count: int, body: bytes) -> bytes:
    """An Avro file with one block."""
    meta = {b"avro.schema": schema.encode(), b"avro.codec": b"null"}
    head = b"".join(_long(len(k)) + k + _long(len(v)) + v for k, v in meta.items())
    return b"".join(
        [b"Obj\x01", _long(len(meta)), head, _long(0), _SYNC, _long(count), _long(len(body)), body, _SYNC]
    )


def _long(number: int) -> bytes:
    """
    >>> _long(64).hex(), _long(0).hex()
    ('8001', '00')
    """
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


@lru_cache(maxsize=1024)
def is_flat(text: str) -> bool:
    """Can Polars read the schema?  Others are read message by message."""
    found = json.loads(text)
    return (
        isinstance(found, dict)
        and found.get("type") == "record"
        and bool(found["fields"])
        and all(_is_plain(f["type"], 1) for f in found["fields"])
    )


def _is_plain(kind: Any, depth: int) -> bool:
    if isinstance(kind, list):
        others = [k for k in kind if k != "null"]
        if len(kind) != 2 or len(others) != 1 or _is_union(others[0]) or _may_be_null_enum(kind):
            return False
        return _is_plain(others[0], depth)
    if isinstance(kind, str):
        return kind in _PRIMITIVE
    inner = kind.get("type")
    if inner in _PRIMITIVE:
        return kind.get("logicalType") in _LOGICAL
    if depth and inner == "array":
        return _is_plain(kind["items"], 0)
    return bool(depth and inner == "enum")


def _may_be_null_enum(kind: list[Any]) -> bool:
    """An enum that may be null, which Polars does not read."""
    return any(isinstance(k, dict) and k.get("type") == "enum" for k in kind)


def _is_union(kind: Any) -> bool:
    return isinstance(kind, list)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Any:
    return library("fastavro").parse_schema(json.loads(text))


def library(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise InvalidError(
            "the Avro libraries are not installed", detail=str(error), hint="pip install 'millpond[avro]'"
        ) from error
