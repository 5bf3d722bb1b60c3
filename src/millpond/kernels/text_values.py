"""Turns the texts of a database into typed columns.

Law 9: a text that is not a value of its type is reported with its place, never changed silently.
The texts are those that PostgreSQL writes with DateStyle ISO, and the texts of JSON values.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc


def typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as values of a type; raises pa.ArrowInvalid if one of them is none.

    >>> typed(pa.array(["t", None, "f"]), pa.bool_()).to_pylist()
    [True, None, False]
    >>> typed(pa.array(["2024-05-01 12:00:00+00"]), pa.timestamp("us", "UTC"))[0].as_py().isoformat()
    '2024-05-01T12:00:00+00:00'
    """
    t = pa.types
    if t.is_string(kind):
        return column
    if t.is_boolean(kind):
        yes, no = (pc.is_in(column, value_set=pa.array(words)) for words in (_TRUE, _FALSE))
        if not pc.all(pc.or_(pc.or_(yes, no), pc.is_null(column))).as_py():
            raise pa.ArrowInvalid("a text is neither true nor false")
        return pc.if_else(pc.is_valid(column), yes, pa.scalar(None, pa.bool_()))
    if t.is_binary(kind):
        return _each(column, _bytes, kind)
    if t.is_time(kind):
        return _each(column, datetime.time.fromisoformat, kind)
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError as error:
        raise pa.ArrowInvalid(str(error)) from error


def typed_columns(
    columns: Sequence[pa.Array], schema: pa.Schema, rows: int
) -> tuple[pa.Table, pa.Array | None, list[tuple[int, str]]]:
    """The rows whose texts are values of their types, which rows these are, and the others with the reason.

    >>> texts = [pa.array(["1", "x", None])]
    >>> table, good, bad = typed_columns(texts, pa.schema([("k", pa.int64())]), 3)
    >>> table.column("k").to_pylist(), good.to_pylist(), [row for row, _ in bad]
    ([1, None], [0, 2], [1])
    """
    bad: dict[int, str] = {}
    made: list[pa.Array] = []
    for column, field in zip(columns, schema, strict=True):
        try:
            made.append(typed(column, field.type))
            continue
        except pa.ArrowInvalid:
            pass  # some rows are bad: they are found below
        for row, reason in _bad_rows(column, field.type):
            bad.setdefault(row, f"column {field.name!r}: {reason}")
    if not bad:
        return pa.table(made, schema=schema), None, []
    good = pa.array([row for row in range(rows) if row not in bad], pa.int64())
    good_columns = [typed(column.take(good), f.type) for column, f in zip(columns, schema, strict=True)]
    return pa.table(good_columns, schema=schema), good, sorted(bad.items())


def _bad_rows(column: pa.Array, kind: pa.DataType) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []

    def solve(lo: int, hi: int) -> None:
        try:
            typed(column.slice(lo, hi - lo), kind)
        except pa.ArrowInvalid as error:
            if hi - lo == 1:
                found.append((lo, str(error)))
                return
            middle = (lo + hi) // 2
            solve(lo, middle)
            solve(middle, hi)

    solve(0, len(column))
    return found


_TRUE = ("t", "true")
_FALSE = ("f", "false")


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else text.encode()


def _each(column: pa.Array, read: Callable[[str], object], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([None if v is None else read(v) for v in column.to_pylist()], kind)
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
