"""COPY … FROM STDIN: rows that a client sends become one inbox entry.

Law: all rows of a COPY are inserted, or none: also if the client goes, or sends a row that does not fit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import duckdb

from millpond.server.pgwire import messages as m
from millpond.server.pgwire.copy_out import SIGNATURE
from millpond.server.pgwire.error_reports import PgError
from millpond.server.pgwire.parameter_values import value_of
from millpond.server.pgwire.statement_runner import StatementRunner
from millpond.server.pgwire.transport import PgTransport
from millpond.sql.binding.types import quoted
from millpond.sql.copy.copied_input import Row, as_table, copied_columns, copied_rows
from millpond.sql.copy.copy_statement import CopyStatement
from millpond.sql.dml.copied_rows import insert_texts
from millpond.sql.pg_catalog.pg_types import column_type

BYTES_MAX = 256 << 20  # of one COPY


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
        lambda: runner.client.with_session(lambda session: copied_columns(session, table, asked))
    )
    transport.put(m.copy_response(b"G", len(names), copy.format == "binary"))
    await transport.flush()
    data = await _received(next_message)
    return int(await runner.client.in_thread(lambda: _insert(runner, copy, names, types, data)))


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
    rows = _binary_rows(data, types) if copy.format == "binary" else copied_rows(data, copy, names)
    given = as_table(rows, names)
    if not given.num_rows:
        return 0
    assert copy.table is not None
    table = copy.table
    into = f"COPY {quoted(table)} FROM STDIN"
    runner.client.change(into, lambda session: insert_texts(session, table, given))
    return int(given.num_rows)


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
    if isinstance(value, duckdb.Value):
        value = value.object
    if isinstance(value, list):
        return "[" + ", ".join("NULL" if v is None else _element(v) for v in value) + "]"
    return str(value)


def _element(value: Any) -> str:
    text = _as_text(value) or ""
    return "'" + text.replace("'", "''") + "'" if isinstance(value, str) else text
