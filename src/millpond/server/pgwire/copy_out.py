"""COPY … TO STDOUT: the rows of a table or a query, as text, CSV or binary."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pyarrow as pa

from millpond.server.pgwire import messages as m
from millpond.server.pgwire.data_rows import RowEncoder
from millpond.server.pgwire.error_reports import PgError
from millpond.server.pgwire.statement_runner import StatementRunner
from millpond.server.pgwire.transport import PgTransport
from millpond.sql.copy.copied_output import header_line
from millpond.sql.copy.copy_statement import CopyStatement, query_of

SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)


async def send_copy(
    runner: StatementRunner, transport: PgTransport, copy: CopyStatement, on_notice: Callable[[str], None]
) -> int:
    """Send the rows; returns their number."""
    outcome = await runner.run(query_of(copy), (), on_notice)
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
        yield m.copy_data(header_line(names, copy).encode())
    yield from encoder.copy_lines(table, copy)
