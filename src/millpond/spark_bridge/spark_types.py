"""Arrow columns as Spark expects them.

Law: a value means the same in Spark as in the pond, or reading it is an error.  Unsigned integers become the
next larger signed type (64 bits: a decimal), dictionaries become their values, and times become microseconds.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from millpond.errors import InvalidError

_PLAIN = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark types of some columns."""
    try:
        plain = pa.schema([pa.field(f.name, _plain(f.type), f.nullable) for f in schema])
        return from_arrow_schema(plain, prefer_timestamp_ntz=True)
    except Exception as error:  # pyspark raises its own kinds, which differ between versions
        raise InvalidError(
            "Spark has no type for a column of this view",
            detail=f"columns are {', '.join(f'{f.name} {f.type}' for f in schema)}: {error}"[:500],
            hint='cast the column in the view, or choose others with .option("columns", "a,b")',
        ) from error


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types in which Spark receives these columns."""
    return to_arrow_schema(schema, timezone="UTC")


def for_spark(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows as Spark receives them; no copy if the types are already the same."""
    rows = rows.select(schema.names)
    if rows.schema.equals(schema):
        return rows
    arrays = [_cast(rows.column(field.name), field) for field in schema]
    return pa.table(arrays, schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise InvalidError(
            f"a value of column {field.name!r} has no equal in Spark",
            detail=f"from {column.type} to {field.type}: {error}",
            hint="cast the column in the view",
        ) from error


def _plain(kind: Any) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind]
    types = pa.types
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type), kind.item_field.with_type(_plain(kind.item_type)))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([f.with_type(_plain(f.type)) for f in kind.fields])
    return kind
