"""COPY … TO STDOUT: the rows of a table or a query, as text, CSV or binary."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pyarrow as pa

from millpond.server.pgwire import messages as m
from millpond.server.pgwire.copy_statement import CopyStatement
from millpond.server.pgwire.data_rows import RowEncoder
from millpond.server.pgwire.error_reports import PgError
from millpond.server.pgwire.statement_runner import StatementRunner
from millpond.server.pgwire.transport import PgTransport
from millpond.sql.binding.types import quoted
from millpond.sql.text.parse import SqlFragment, statements

SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)


async def send_copy(
    runner: StatementRunner, transport: PgTransport, copy: CopyStatement, on_notice: Callable[[str], None]
) -> int:
    """Send the rows; returns their number."""
    outcome = await runner.run(_query(copy), (), on_notice)
    if outcome.columns is None or outcome.table is None:
        raise PgError("0A000", "COPY needs a query that gives rows")
    transport.put(m.copy_response(b"H", len(outcome.columns), copy.format == "binary"))
    encoder = RowEncoder(outcome.types, [int(copy.format == "binary")] * len(outcome.columns))
    names = [name for name, _ in outcome.columns]
    async for data in runner.client.pool.encoded(_pieces(encoder, names, copy, outcome.table)):
        transport.put(data)
        await transport.flush_if_large()
    transport.put(m.COPY_DONE)
    return int(outcome.table.num_rows)


def _pieces(encoder: RowEncoder, names: list[str], copy: CopyStatement, table: pa.Table) -> Iterator[bytes]:
    """CopyData messages."""
    if copy.format == "binary":
        yield from encoder.copy_binary(table, SIGNATURE)
        yield m.copy_data((b"" if table.num_rows else SIGNATURE) + struct.pack("!h", -1))
        return
    if copy.header:
        yield m.copy_data((copy.delimiter.join(names) + "\n").encode())
    if copy.format == "csv":
        yield from encoder.copy_csv(table, copy.delimiter, copy.null, copy.quote)
    else:
        yield from encoder.copy_text(table, copy.delimiter, copy.null)


def _query(copy: CopyStatement) -> SqlFragment:
    if copy.query is not None:
        text = copy.query.sql
    else:
        assert copy.table is not None
        listed = "*" if copy.columns is None else ", ".join(quoted(c) for c in copy.columns)
        text = f"SELECT {listed} FROM {quoted(copy.table)}"
    (found,) = statements(text, "postgres")
    return found
