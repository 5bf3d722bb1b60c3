"""The types of PostgreSQL for Arrow types, and Arrow columns as values that COPY takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.sinks.json_rows import json_text

_TEXTS = ("text", "varchar", "bpchar")
_NUMBERS = ("int2", "int4", "int8", "float4", "float8", "numeric")


@dataclass(frozen=True)
class PostgresType:
    name: str
    others: tuple[str, ...] = ()  # types of existing columns into which values can be written

    def takes(self, held: str) -> bool:
        return held == self.name.partition("(")[0] or held in self.others


def column_type(kind: pa.DataType) -> str:
    """
    >>> column_type(pa.int64()), column_type(pa.decimal128(10, 2)), column_type(pa.list_(pa.int64()))
    ('int8', 'numeric(10,2)', 'jsonb')
    """
    return type_name(kind).name


def type_name(kind: pa.DataType) -> PostgresType:
    t = pa.types
    if t.is_dictionary(kind):
        return type_name(kind.value_type)
    if t.is_boolean(kind):
        return PostgresType("bool")
    if t.is_integer(kind):
        name = (
            "int2" if kind.bit_width <= 8 else "int8" if kind.bit_width >= 32 and _is_wide(kind) else "int4"
        )
        return PostgresType("numeric" if t.is_uint64(kind) else name, _NUMBERS)
    if t.is_floating(kind):
        return PostgresType("float4" if kind.bit_width <= 32 else "float8", _NUMBERS)
    if t.is_decimal(kind):
        return PostgresType(f"numeric({kind.precision},{kind.scale})", _NUMBERS)
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return PostgresType("text", (*_TEXTS, "json", "jsonb", "uuid", "name"))
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return PostgresType("bytea")
    if t.is_date(kind):
        return PostgresType("date", ("timestamp",))
    if t.is_timestamp(kind):
        return PostgresType("timestamp" if kind.tz is None else "timestamptz")
    if t.is_time(kind):
        return PostgresType("time")
    if t.is_duration(kind):
        return PostgresType("interval")
    if t.is_nested(kind):
        return PostgresType("jsonb", ("json", "text"))
    if isinstance(kind, pa.BaseExtensionType):
        return PostgresType("uuid", _TEXTS) if "uuid" in str(kind) else type_name(kind.storage_type)
    if t.is_null(kind):
        return PostgresType("text", _TEXTS)
    raise InvalidError(f"PostgreSQL has no type for {kind}")


def _is_wide(kind: pa.DataType) -> bool:
    return bool(kind.bit_width == 64 or pa.types.is_uint32(kind))


def copied_columns(rows: pa.Table) -> list[Iterator[Any]]:
    """The values of each column, as psycopg writes them."""
    return [_values(column) for column in rows.columns]


def _values(column: pa.ChunkedArray) -> Iterator[Any]:
    nested = pa.types.is_nested(column.type)
    for chunk in column.chunks:
        if nested:
            yield from (None if value is None else json_text(value) for value in chunk.to_pylist())
        else:
            yield from chunk.to_pylist()
