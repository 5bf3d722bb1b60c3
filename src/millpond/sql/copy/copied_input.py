"""The rows that a client sends with COPY … FROM STDIN, as text or CSV, and the table that takes them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.sql.copy.copy_statement import CopyStatement
from millpond.sql.copy.pg_error import PgError

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

Row = list[str | None]


def copied_columns(
    session: SqlSession, table: str, asked: tuple[str, ...] | None
) -> tuple[list[str], list[str]]:
    found = session.catalog.get(table, "table")
    columns = {c.name.lower(): c for c in found.columns if c.generated is None}
    wanted = list(columns) if asked is None else [name.lower() for name in asked]
    for name in wanted:
        if name not in columns:
            raise PgError("42703", f'column "{name}" of relation "{found.name}" does not exist')
    return [columns[n].name for n in wanted], [columns[n].type for n in wanted]


def copied_rows(data: bytes, copy: CopyStatement, names: Sequence[str]) -> Iterator[Row]:
    """The rows of a COPY in text or CSV, each value as text."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PgError("22021", "the data of COPY is not UTF-8", detail=str(error)) from None
    rows = _csv_rows(text, copy, names) if copy.format == "csv" else _text_rows(text, copy)
    if copy.matches_header and (first := next(rows, None)) != list(names):
        found = ", ".join(str(name) for name in first or ())
        raise PgError("22P04", "column names of the header do not match", detail=f"the header has {found}")
    return rows


def as_table(rows: Iterable[Row], names: Sequence[str]) -> pa.Table:
    """The rows as columns of texts."""
    columns: list[list[str | None]] = [[] for _ in names]
    for count, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise PgError(
                "22P04",
                "extra data after last expected column"
                if len(row) > len(names)
                else "missing data for column",
                detail=f"row {count} has {len(row)} columns, not {len(names)}",
            )
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return pa.Table.from_arrays([pa.array(c, pa.string()) for c in columns], names=list(names))


def _text_rows(text: str, copy: CopyStatement) -> Iterator[Row]:
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    for line in lines[1 if copy.header and not copy.matches_header else 0 :]:
        line = line.removesuffix("\r")
        if line == "\\.":
            return
        yield [None if field == copy.null else _unescaped(field) for field in _split(line, copy.delimiter)]


def _split(line: str, delimiter: str) -> list[str]:
    if "\\" not in line:
        return line.split(delimiter)
    found, part, at = [], "", 0
    while at < len(line):
        sign = line[at]
        if sign == "\\" and at + 1 < len(line):
            part += line[at : at + 2]
            at += 2
            continue
        if sign == delimiter:
            found.append(part)
            part = ""
        else:
            part += sign
        at += 1
    return [*found, part]


_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _unescaped(field: str) -> str:
    r"""
    >>> _unescaped("a\\tb\\\\c")
    'a\tb\\c'
    """
    if "\\" not in field:
        return field
    found, at = "", 0
    while at < len(field):
        if field[at] == "\\" and at + 1 < len(field):
            found += _ESCAPES.get(field[at + 1], field[at + 1])
            at += 2
        else:
            found += field[at]
            at += 1
    return found


def _csv_rows(text: str, copy: CopyStatement, names: Sequence[str]) -> Iterator[Row]:
    double = copy.escape == copy.quote
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=copy.delimiter,
        quotechar=copy.quote,
        doublequote=double,
        escapechar=None if double else copy.escape,
        strict=True,
    )
    quoted_null = copy.quote + copy.null + copy.quote
    if quoted_null in text or copy.force_null or copy.force_not_null:  # csv does not tell what was in quotes
        yield from _csv_by_hand(text, copy, names)
        return
    try:
        for number, row in enumerate(reader):
            if (copy.header and not copy.matches_header and number == 0) or not row:
                continue
            if row == ["\\."]:
                return
            yield [None if field == copy.null else field for field in row]
    except csv.Error as error:
        raise PgError("22P04", f"invalid CSV: {error}", detail=f"line {reader.line_num}") from None


def _csv_by_hand(text: str, copy: CopyStatement, names: Sequence[str]) -> Iterator[Row]:
    """The same, keeping apart NULL and the same text in quotes."""
    lower = [name.lower() for name in names]
    from_quotes = [not copy.force_null.isdisjoint((name, "*")) for name in lower]
    never = [not copy.force_not_null.isdisjoint((name, "*")) for name in lower]

    def value(place: int, field: str, in_quotes: bool) -> str | None:
        if field != copy.null or place >= len(lower):
            return field
        is_null = from_quotes[place] if in_quotes else not never[place]
        return None if is_null else field

    row: Row = []
    field, quoted_field, inside, at, number = "", False, False, 0, 0
    text = text if text.endswith("\n") else text + "\n"
    while at < len(text):
        sign = text[at]
        at += 1
        if inside:
            if sign == copy.escape and text[at : at + 1] == copy.quote:
                field += copy.quote
                at += 1
            elif sign == copy.quote:
                inside = False
            else:
                field += sign
        elif sign == copy.quote:
            inside = quoted_field = True
        elif sign == copy.delimiter or sign == "\n":
            if sign == "\n":
                field = field.removesuffix("\r")
            row.append(value(len(row), field, quoted_field))
            field, quoted_field = "", False
            if sign == "\n":
                skipped = copy.header and not copy.matches_header and number == 0
                if not skipped and row != [None]:
                    yield row
                row, number = [], number + 1
        else:
            field += sign
    if inside:
        raise PgError("22P04", "unterminated CSV quoted field")
