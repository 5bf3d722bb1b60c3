"""Converts rows from outside to rows of a state table, or raises an error with the row and the reason.

A column that is omitted gets its default, or NULL; key and order columns are
required.  Untyped state is stored as pickles: in Python rows its values are the
objects, in Arrow rows the bytes.
"""

from __future__ import annotations

import difflib
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from millpond import hashing, moved_names
from millpond.errors import InvalidError
from millpond.identity import canonical, one_chunk
from millpond.kernels.python_values import python_values
from millpond.state.runs.missing_column import filled
from millpond.state.runs.sorted_rows import sort_rows
from millpond.state.tables.table import family
from millpond.state.tables.table_spec import TableSpec

NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)
EXPIRES = "expires"  # when rows of a state with a time to live expire; not a user's column


def is_pickled(field: pa.Field) -> bool:
    return (field.metadata or {}).get(b"millpond") == b"pickle"


def python_rows(spec: TableSpec, table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts, with untyped values unpickled: this runs the code in the pickles."""
    columns = []
    for name in table.column_names:
        values = python_values(table.column(name))
        if is_pickled(spec.schema.field(name)):
            values = [None if raw is None else moved_names.loads(raw) for raw in values]
        columns.append(values)
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def from_python(step: str, spec: TableSpec, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Convert Python rows to the columns of the table."""
    arrays = []
    for field in spec.schema:
        fill = spec.fill.get(field.name)
        if fill is None:
            for row in rows:
                if field.name not in row:
                    raise misfit(step, spec, row, f"it lacks the key column {field.name!r}")
        absent = fill[0].as_py() if isinstance(fill, pa.Array) else None  # states copy no columns
        values = [row.get(field.name, absent) for row in rows]
        try:
            arrays.append(_array(field, values))
        except Exception as error:  # raised again below with the row that caused it
            for row, value in zip(rows, values, strict=True):
                try:
                    _array(field, [value])
                except Exception as its:  # a user's object may raise anything when it is pickled
                    why = f"column {field.name!r} is {_shown(field)}, got {type(value).__name__} {value!r}"
                    raise misfit(step, spec, row, why) from its
            raise misfit(step, spec, {}, str(error)) from error
    return pa.table(arrays, schema=spec.schema)


def _array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    if is_pickled(field):
        return pa.array([None if v is None else _pickled(v) for v in values], field.type)
    made = pa.array(values, field.type)
    if made.null_count and not field.nullable:
        raise ValueError("NULL where a value is needed")
    return made


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, 5)
    except Exception:  # a class of __main__ or of a function is pickled by value
        return bytes(cloudpickle.dumps(value, 5))


def from_arrow(step: str, spec: TableSpec, rows: pa.Table) -> pa.Table:
    """Convert Arrow rows to the columns of the table; only casts that preserve all values are allowed."""
    columns = []
    for field in spec.schema:
        if field.name not in rows.column_names:
            fill = spec.fill.get(field.name)
            if fill is None:
                raise misfit(step, spec, None, f"they lack the key column {field.name!r}")
            columns.append(filled(rows, field.name, fill))
            continue
        column = one_chunk(rows.column(field.name))
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if column.type != field.type:
            column = _cast(step, spec, rows, field, column)
        if column.null_count and not field.nullable:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise misfit(step, spec, _row(rows, row), f"column {field.name!r} must not be NULL")
        columns.append(column)
    return pa.table(columns, schema=spec.schema)


def _cast(step: str, spec: TableSpec, rows: pa.Table, field: pa.Field, column: pa.Array) -> pa.Array:
    kinds = family(column.type), family(field.type)
    whole = pa.types.is_integer(column.type) and pa.types.is_floating(field.type)
    if kinds[0] != kinds[1] and not whole and not pa.types.is_null(column.type):
        why = f"column {field.name!r} is {_shown(field)}, got {column.type}"
        raise misfit(step, spec, None, why)
    try:
        return column.cast(field.type)
    except NOT_ARROW as error:
        low, high = 0, len(column)  # binary search for the first row that does not fit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _fits(column.slice(low, middle - low), field) else (low, middle)
        raise misfit(step, spec, _row(rows, low), f"column {field.name!r}: {error}") from error


def _fits(column: pa.Array, field: pa.Field) -> bool:
    try:
        column.cast(field.type)
    except NOT_ARROW:
        return False
    return True


def _row(rows: pa.Table, number: int) -> dict[str, Any]:
    row: dict[str, Any] = rows.slice(number, 1).to_pylist()[0]
    return row


def refuse_unknown(step: str, spec: TableSpec, columns: Iterable[str], also: Iterable[str] = ()) -> None:
    """Refuse columns that the table does not have; those in `also` are allowed and ignored."""
    unknown = sorted({*columns} - {*spec.schema.names} - {*also})
    if unknown:
        matches = difflib.get_close_matches(unknown[0], spec.schema.names, 1)
        raise InvalidError(
            f"{_state(spec)} has no column {unknown[0]!r}",
            detail=f"columns are {', '.join(spec.schema.names)}",
            hint=f"did you mean {matches[0]!r}?" if matches else None,
            step=step,
        )


def refuse_twice(step: str, spec: TableSpec, rows: pa.Table) -> None:
    """Refuse two rows with the same identity in the table."""
    columns = {name: canonical(one_chunk(rows.column(name))) for name in spec.identity}
    hashes = hashing.hash_columns([columns[name] for name in spec.key], rows.num_rows)
    perm, same = sort_rows(spec, columns, hashes)
    if same is None or not same.any():
        return
    position = int(np.flatnonzero(same)[0])
    number = position if perm is None else int(perm[position])
    row = {name: column[number].as_py() for name, column in columns.items()}
    raise InvalidError(
        f"two rows for {_state(spec)} have one identity",
        detail=f"{row} comes at least twice",
        hint=f"there is one row for each {', '.join(spec.identity)}",
        step=step,
    )


def misfit(step: str, spec: TableSpec, row: Mapping[str, Any] | None, why: str) -> InvalidError:
    return InvalidError(
        f"{'rows do' if row is None else 'a row does'} not fit {_state(spec)}",
        detail=why if row is None else f"{why}, in row {dict(row)!r}",
        hint="columns are " + ", ".join(f"{f.name} {_shown(f)}" for f in spec.schema if f.name != EXPIRES),
        step=step,
    )


def _shown(field: pa.Field) -> str:
    return "a pickle" if is_pickled(field) else str(field.type)


def _state(spec: TableSpec) -> str:
    return f"state {spec.name.rpartition('/')[2]!r}"
