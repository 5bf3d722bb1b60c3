"""COPY … FROM STDIN: rows that a client sends become one inbox entry.

Law: all rows of a COPY are inserted, or none: also if the client goes, or sends a row that does not fit.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow as pa

from millpond.server.pgwire import messages as m
from millpond.server.pgwire.copy_out import SIGNATURE
from millpond.server.pgwire.copy_statement import CopyStatement
from millpond.server.pgwire.error_reports import PgError
from millpond.server.pgwire.parameter_values import value_of
from millpond.server.pgwire.statement_runner import StatementRunner
from millpond.server.pgwire.transport import PgTransport
from millpond.sql.binding.types import quoted
from millpond.sql.dml.copied_rows import insert_texts
from millpond.sql.pg_catalog.pg_types import column_type
from millpond.sql.session import SqlSession

BYTES_MAX = 256 << 20  # of one COPY
Row = list[str | None]


async def receive_copy(
    runner: StatementRunner,
    transport: PgTransport,
    copy: CopyStatement,
    next_message: Callable[[], Awaitable[m.ClientMessage]],
) -> int:
    """Receive all rows, then insert them; returns their number."""
    assert copy.table is not None
    table, asked = copy.table, copy.columns
    names, types = await runner.client.in_thread(
        lambda: runner.client.with_session(lambda session: _columns(session, table, asked))
    )
    transport.put(m.copy_response(b"G", len(names), copy.format == "binary"))
    await transport.flush()
    data = await _received(next_message)
    return int(await runner.client.in_thread(lambda: _insert(runner, copy, names, types, data)))


def _columns(session: SqlSession, table: str, asked: tuple[str, ...] | None) -> tuple[list[str], list[str]]:
    found = session.catalog.get(table, "table")
    columns = {c.name.lower(): c for c in found.columns if c.generated is None}
    wanted = list(columns) if asked is None else [name.lower() for name in asked]
    for name in wanted:
        if name not in columns:
            raise PgError("42703", f'column "{name}" of relation "{found.name}" does not exist')
    return [columns[n].name for n in wanted], [columns[n].type for n in wanted]


async def _received(next_message: Callable[[], Awaitable[m.ClientMessage]]) -> bytes:
    parts: list[bytes] = []
    size = 0
    failure: PgError | None = None
    while True:
        message = await next_message()
        match message:
            case m.CopyDataIn():
                size += len(message.data)
                if size > BYTES_MAX:
                    failure = PgError(
                        "54000", f"a COPY has at most {BYTES_MAX >> 20} MiB", hint="send it in parts"
                    )
                    parts.clear()
                else:
                    parts.append(message.data)
            case m.CopyDone():
                if failure is not None:
                    raise failure
                return b"".join(parts)
            case m.CopyFail():
                raise PgError("57014", f"COPY from stdin failed: {message.reason}")
            case m.Flush() | m.Sync():
                continue  # clients may send them during a COPY; they mean nothing there
            case _:
                raise m.ProtocolError("this message is not expected during COPY")


def _insert(
    runner: StatementRunner, copy: CopyStatement, names: list[str], types: list[str], data: bytes
) -> int:
    if copy.format == "binary":
        rows = _binary_rows(data, types)
    else:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise PgError("22021", "the data of COPY is not UTF-8", detail=str(error)) from None
        rows = _csv_rows(text, copy) if copy.format == "csv" else _text_rows(text, copy)
    columns: list[list[str | None]] = [[] for _ in names]
    count = 0
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
    if not count:
        return 0
    given = pa.Table.from_arrays([pa.array(c, pa.string()) for c in columns], names=names)
    assert copy.table is not None
    table = copy.table
    into = f"COPY {quoted(table)} FROM STDIN"
    runner.client.change(into, lambda session: insert_texts(session, table, given))
    return count


def _text_rows(text: str, copy: CopyStatement) -> Iterator[Row]:
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    for line in lines[1 if copy.header else 0 :]:
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


def _csv_rows(text: str, copy: CopyStatement) -> Iterator[Row]:
    double = copy.escape == copy.quote
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=copy.delimiter,
        quotechar=copy.quote,
        doublequote=double,
        escapechar=None if double else copy.escape,
        strict=True,
    )
    quoted_empty = copy.quote * 2
    if copy.null == "" and quoted_empty in text:  # csv cannot tell "" from nothing
        yield from _csv_by_hand(text, copy)
        return
    try:
        for number, row in enumerate(reader):
            if (copy.header and number == 0) or not row:
                continue
            if row == ["\\."]:
                return
            yield [None if field == copy.null else field for field in row]
    except csv.Error as error:
        raise PgError("22P04", f"invalid CSV: {error}", detail=f"line {reader.line_num}") from None


def _csv_by_hand(text: str, copy: CopyStatement) -> Iterator[Row]:
    """The same, keeping apart an empty text in quotes and NULL."""
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
            row.append(None if field == copy.null and not quoted_field else field)
            field, quoted_field = "", False
            if sign == "\n":
                if not (copy.header and number == 0) and row != [None]:
                    yield row
                row, number = [], number + 1
        else:
            field += sign
    if inside:
        raise PgError("22P04", "unterminated CSV quoted field")


def _binary_rows(data: bytes, types: list[str]) -> Iterator[Row]:
    """Rows of binary COPY, each value as text."""
    fields = m.Fields(data)
    if fields.take(11) != SIGNATURE[:11]:
        raise PgError("22P04", "COPY file signature not recognized")
    fields.int32()
    fields.take(fields.int32())
    shown = [column_type(t) for t in types]
    while (count := fields.int16()) != -1:
        if count != len(types):
            raise PgError("22P04", "row field count is wrong", detail=f"{count} fields, not {len(types)}")
        row: Row = []
        for kind in shown:
            size = fields.int32()
            value: Any = value_of(None if size == -1 else fields.take(size), kind.oid, 1)
            row.append(_as_text(value))
        yield row


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, list):
        return "[" + ", ".join("NULL" if v is None else _element(v) for v in value) + "]"
    return str(value)


def _element(value: Any) -> str:
    text = _as_text(value) or ""
    return "'" + text.replace("'", "''") + "'" if isinstance(value, str) else text
