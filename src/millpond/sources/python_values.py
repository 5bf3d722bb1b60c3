"""Rows of Python dicts as columns of declared types; values that do not fit are reported with their row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

_WRONG = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


def table_of(
    rows: Sequence[Mapping[str, Any]], schema: pa.Schema
) -> tuple[pa.Table, list[int], list[tuple[int, str]]]:
    """The rows that fit, their numbers, and the others with the reason; a field that is missing is NULL.

    Times may be whole numbers in the unit of their column.

    >>> table, good, bad = table_of([{"k": 1}, {"k": "x"}, {}], pa.schema([("k", pa.int64())]))
    >>> table.column("k").to_pylist(), good, [number for number, _ in bad]
    ([1, None], [0, 2], [1])
    """
    try:
        return _table(rows, schema), list(range(len(rows))), []
    except _WRONG:
        pass  # some rows are bad: they are found one by one
    good, bad = [], []
    for number, row in enumerate(rows):
        reason = _reason(row, schema)
        if reason is None:
            good.append(number)
        else:
            bad.append((number, reason))
    return _table([rows[n] for n in good], schema), good, bad


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.table([_array([row.get(f.name) for row in rows], f.type) for f in schema], schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        for value in values:
            if value is not None and not isinstance(value, str):
                raise TypeError(f"got {type(value).__name__}, and text is wanted")
    if pa.types.is_integer(kind):
        for value in values:
            if isinstance(value, float | bool):
                raise TypeError(f"got {value!r}, and {kind} is wanted")
    t = pa.types
    if (t.is_temporal(kind) or t.is_decimal(kind)) and any(isinstance(value, str) for value in values):
        return pa.array(values, pa.string()).cast(kind)  # formats without such types have text
    return pa.array(values, kind)


def _reason(row: Mapping[str, Any], schema: pa.Schema) -> str | None:
    for field in schema:
        try:
            _array([row.get(field.name)], field.type)
        except _WRONG as error:
            return f"column {field.name!r}: {str(error).splitlines()[0]}"
    return None
