"""The columns of lake tables (Delta Lake, Iceberg) for the columns of a view.

Law: a value arrives without loss, or the view is refused when the sink is defined.
Types that a lake does not have become wider ones, text, or whole numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import pyarrow as pa

from millpond.errors import InvalidError

Lake = Literal["Delta Lake", "Iceberg"]
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_DIGITS_MAX = 38
_NOT_IN_NAMES = " ,;{}()\n\t="  # Spark cannot read columns with these characters


def lake_schema(schema: pa.Schema, lake: Lake) -> pa.Schema:
    """The columns of a table that stores these columns; InvalidError if a lake cannot have them.

    >>> lake_schema(pa.schema([("n", pa.uint32()), ("at", pa.time64("us"))]), "Delta Lake").types
    [DataType(int64), DataType(string)]
    """
    _check_names(schema.names, lake)
    return pa.schema([pa.field(f.name, _lake_type(f.type, lake, f.name)) for f in schema])


def lake_rows(rows: pa.Table, lake: Lake) -> pa.Table:
    """The rows in the types of `lake_schema`."""
    schema = lake_schema(rows.schema, lake)
    columns = [_converted(rows.column(f.name), f.type) for f in schema]
    return pa.table(columns, schema=schema)


def _check_names(names: Sequence[str], lake: Lake) -> None:
    twice = [name for name, count in Counter(n.lower() for n in names).items() if count > 1]
    if twice:
        raise InvalidError(
            f"{lake} does not distinguish columns by upper and lower case",
            detail=f"there are several columns named {twice[0]!r}",
            hint="rename one of them in the view",
        )
    odd = [name for name in names if not name or set(name) & set(_NOT_IN_NAMES)]
    if odd:
        raise InvalidError(
            f"{lake} has no column named {odd[0]!r}",
            detail=f"a name has none of the characters {_NOT_IN_NAMES!r}",
            hint="rename it in the view",
        )


def _lake_type(kind: pa.DataType, lake: Lake, column: str) -> pa.DataType:
    t = pa.types
    inner: Callable[[pa.DataType], pa.DataType] = lambda other: _lake_type(other, lake, column)  # noqa: E731
    if t.is_dictionary(kind):
        return inner(kind.value_type)
    if kind in _WIDER:
        return inner(_WIDER[kind])
    if t.is_uint64(kind):
        return pa.decimal128(20, 0)
    if t.is_boolean(kind) or t.is_signed_integer(kind):
        return pa.int32() if lake == "Iceberg" and t.is_integer(kind) and kind.bit_width < 32 else kind
    if t.is_floating(kind):
        return pa.float32() if t.is_float16(kind) else kind
    if t.is_decimal(kind) and kind.precision <= _DIGITS_MAX and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind) or t.is_null(kind):
        return pa.string()
    if _is_binary(kind):
        return pa.binary()
    if t.is_date(kind):
        return pa.date32()
    if t.is_timestamp(kind) and kind.unit != "ns":
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if t.is_time(kind) and kind.unit != "ns":
        return pa.string() if lake == "Delta Lake" else pa.time64("us")
    if t.is_duration(kind) and kind.unit == "us":
        return pa.int64()
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", inner(kind.value_type)))
    if t.is_struct(kind):
        _check_names([f.name for f in kind], lake)
        return pa.struct([pa.field(f.name, inner(f.type)) for f in kind])
    if t.is_map(kind):
        return pa.map_(inner(kind.key_type), inner(kind.item_type))
    raise InvalidError(
        f"column {column!r}: {lake} has no type for {kind}",
        hint="cast it in the view, for example to VARCHAR or TIMESTAMP",
    )


def _is_binary(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind) or t.is_binary_view(kind)
    )


def _converted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type).cast(kind)
    return column.cast(kind)
