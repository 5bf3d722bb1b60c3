"""Native functions written for one row, run over whole columns.

Law: the code of a function sees each distinct row of arguments once per batch; a NULL argument gives NULL
unless the function says that it takes NULLs.
Times arrive and leave as numbers (microseconds, days), so that infinity and years before 1 pass unharmed;
an interval is (months, days, microseconds).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.kernels.duck import RowFailure
from millpond.kernels.native_functions import NativeFunction, native

Interval = tuple[int, int, int]

_ARROW: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "INTERVAL": pa.month_day_nano_interval(),
    "VARCHAR[]": pa.list_(pa.string()),
    "VARCHAR[][]": pa.list_(pa.list_(pa.string())),
    "INTEGER[]": pa.list_(pa.int32()),
    "BIGINT[]": pa.list_(pa.int64()),
    "TIMESTAMP[]": pa.list_(pa.timestamp("us")),
    "TIMESTAMPTZ[]": pa.list_(pa.timestamp("us", "UTC")),
}


def row_function(
    name: str, takes: tuple[str, ...], gives: str, *, takes_nulls: bool = False
) -> Callable[[Callable[..., Any]], NativeFunction]:
    """Decorate the code of a native function that is written for one row.

    >>> @row_function("pg.shout_for_a_test.1", ("VARCHAR",), "VARCHAR")
    ... def shout(text):
    ...     return text.upper()
    >>> shout(pa.chunked_array([["a", None, "a"]])).to_pylist()
    ['A', None, 'A']
    """
    kind = _ARROW[gives]

    def define(code: Callable[..., Any]) -> NativeFunction:
        def run(*columns: pa.Array) -> pa.Array:
            return column_of(kind, _results(code, columns, takes_nulls))

        return native(name, takes, gives)(run)

    return define


def _results(code: Callable[..., Any], columns: tuple[pa.Array, ...], takes_nulls: bool) -> list[Any]:
    known: dict[Any, Any] = {}
    found: list[Any] = []
    for row in zip(*(values(column) for column in columns), strict=True):
        if not takes_nulls and None in row:
            found.append(None)
            continue
        try:
            found.append(known[row])
        except KeyError:
            try:
                result = known[row] = code(*row)
            except (ValueError, ArithmeticError) as error:
                raise RowFailure(str(error)) from error
            found.append(result)
    return found


def values(column: pa.Array) -> list[Any]:
    """The values of a column as Python has them, all of them hashable."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return list(column.view(pa.int64()).to_pylist())
    if pa.types.is_date32(kind):
        return list(column.view(pa.int32()).to_pylist())
    if pa.types.is_interval(kind):
        return [None if v is None else (v.months, v.days, v.nanoseconds // 1000) for v in column.to_pylist()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_tuple(v) for v in column.to_pylist()]
    return list(column.to_pylist())


def _tuple(value: Any) -> Any:
    return tuple(_tuple(v) for v in value) if isinstance(value, list) else value


def column_of(kind: pa.DataType, found: list[Any]) -> pa.Array:
    """An Arrow column of results."""
    if pa.types.is_interval(kind):
        try:
            return pa.array(
                [None if v is None else pa.MonthDayNano([v[0], v[1], v[2] * 1000]) for v in found], kind
            )
        except (OverflowError, pa.ArrowInvalid) as error:
            raise RowFailure("interval out of range") from error
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.array(found, pa.int64()).view(kind)
    if pa.types.is_date32(kind):
        return pa.array(found, pa.int32()).view(kind)
    if pa.types.is_list(kind) and pa.types.is_timestamp(kind.value_type):
        return pa.array(found, pa.list_(pa.int64())).cast(kind)
    return pa.array(found, kind)
