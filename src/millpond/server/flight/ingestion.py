"""Rows in bulk into a table: CommandStatementIngest.

Law: rows are durable when the call returns.  They are written in entries of at most `ENTRY_ROWS` rows; each
entry is in one epoch, whole.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.server.client_session import ClientSession
from millpond.sources.inbox_table import ROWS_MAX
from millpond.sql.binding.catalog import columns_of
from millpond.sql.binding.types import quoted

ENTRY_ROWS = min(ROWS_MAX, 500_000)
ENTRY_BYTES = 32 << 20
CREATE, FAIL_IF_ABSENT = 1, 2  # if the table does not exist
FAIL, APPEND, REPLACE = 1, 2, 3  # if the table exists


def ingest(client: ClientSession, command: Any, reader: Any) -> int:
    """Write the rows of a stream; returns how many."""
    if command.HasField("transaction_id") and command.transaction_id:
        raise InvalidError("rows cannot be ingested in a transaction", hint="ingest them without one")
    if command.temporary:
        raise InvalidError("there are no temporary tables", hint="ingest into a table of the pond")
    name = _prepared(client, command, reader.schema)
    pond = client.pool.pond
    rows = 0
    for table in _entries(reader):
        pond.insert(name, table)
        client.pool.pipeline.ensure()
        rows += table.num_rows
    with client.pool.lent() as session:
        if rows and client.read_your_writes:
            session.host.flush(60.0)
    return rows


def _prepared(client: ClientSession, command: Any, schema: pa.Schema) -> str:
    """Create or replace the table as asked; returns its name."""
    options, name = command.table_definition_options, command.table
    client.pool.authorizer.check_action(client.user, "insert", name)
    with client.pool.lent() as session:
        found = session.catalog.find(name)
    if found is not None and options.if_exists == FAIL:
        raise InvalidError(f"there is a {found.kind} named {found.name!r} already", hint="append to it")
    if found is None and options.if_not_exist != CREATE:
        raise InvalidError(f"no table named {name!r}", hint="let the client create it")
    if found is not None and options.if_exists == REPLACE:
        client.execute(f"DROP TABLE {quoted(found.name)}")
        found = None
    if found is None:
        columns = ", ".join(f"{quoted(c.name)} {c.type}" for c in columns_of(schema))
        client.execute(f"CREATE TABLE {quoted(name)} ({columns})", dialect="duckdb")
    with client.pool.lent() as session:
        made = session.catalog.get(name, "table")
    if made.scan is None:
        raise InvalidError(f"rows cannot be added to {name!r}")
    return made.name


def _entries(reader: Any) -> Any:
    """The rows of a stream in tables of a bounded size."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for chunk in reader:
        batch = chunk.data
        if batch is None:
            continue
        for start in range(0, batch.num_rows, ENTRY_ROWS):
            part = batch.slice(start, ENTRY_ROWS)
            if pending and (rows + part.num_rows > ENTRY_ROWS or size + part.nbytes > ENTRY_BYTES):
                yield pa.Table.from_batches(pending)
                pending, rows, size = [], 0, 0
            pending.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
    if rows:
        yield pa.Table.from_batches(pending)
