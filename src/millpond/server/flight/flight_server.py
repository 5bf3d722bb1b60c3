"""The calls of Flight, dispatched by the command of Flight SQL in them.

Law: a statement runs in the pool of the server, so it has its limits and can be cancelled; a query runs when
its rows are fetched, any other statement once, when it is first described.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import flight

from millpond.errors import InvalidError
from millpond.server.client_session import READS, ClientSession
from millpond.server.flight import catalog_commands
from millpond.server.flight.flight_errors import as_flight_errors
from millpond.server.flight.ingestion import ingest
from millpond.server.flight.login_middleware import NAME, LoginFactory, OpenHandshake
from millpond.server.flight.messages import message, packed, unpacked
from millpond.server.flight.prepared_statements import (
    PreparedText,
    PreparedTexts,
    bound_rows,
    parameter_schema,
)
from millpond.server.flight.record_batches import stream_of
from millpond.server.request_transactions import one_request
from millpond.server.serving import Serving
from millpond.sql.result import Result
from millpond.sql.text.parse import statements

T = TypeVar("T")
CREATE, CLOSE = "CreatePreparedStatement", "ClosePreparedStatement"
NO_ROWS = pa.schema([])


class FlightSqlServer(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, serving: Serving, location: str, loop: asyncio.AbstractEventLoop, **tls: Any) -> None:
        self._serving = serving
        self._loop = loop
        self._prepared = PreparedTexts()
        super().__init__(
            location,
            auth_handler=OpenHandshake(),
            middleware={NAME: LoginFactory(serving.authenticator, serving.statements.audit)},
            **tls,
        )

    # -- what a client asks -----------------------------------------------------------

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with as_flight_errors():
            client = self._client(context)
            schema, ticket = self._described(client, descriptor.command or b"")
            return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        with as_flight_errors():
            return flight.SchemaResult(self._described(self._client(context), descriptor.command or b"")[0])

    def do_get(self, context: Any, ticket: Any) -> Any:
        with as_flight_errors():
            client = self._client(context)
            name, command = unpacked(ticket.ticket)
            if name in catalog_commands.COMMANDS:
                rows = self._in_pool(client, lambda: catalog_commands.rows_of(name, command, client))
                return flight.RecordBatchStream(rows)
            handle = {
                "TicketStatementQuery": "statement_handle",
                "CommandPreparedStatementQuery": "prepared_statement_handle",
            }.get(name)
            if handle is None:
                raise InvalidError(f"{name} gives no rows")
            return self._rows(client, self._prepared.get(getattr(command, handle), client.user))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with as_flight_errors():
            client = self._client(context)
            name, command = unpacked(descriptor.command or b"")
            match name:
                case "CommandStatementUpdate":
                    count = self._update(client, PreparedText(command.query, client.user))
                case "CommandPreparedStatementUpdate":
                    prepared = self._prepared.get(command.prepared_statement_handle, client.user)
                    rows = bound_rows(reader.read_all())
                    count = self._update(client, PreparedText(prepared.text, client.user, rows))
                case "CommandPreparedStatementQuery":
                    handle = command.prepared_statement_handle
                    prepared = self._prepared.get(handle, client.user)
                    prepared.rows, prepared.result, prepared.schema = (
                        bound_rows(reader.read_all()),
                        None,
                        None,
                    )
                    answer = message("DoPutPreparedStatementResult", prepared_statement_handle=handle)
                    writer.write(pa.py_buffer(answer.SerializeToString()))
                    return
                case "CommandStatementIngest":
                    count = self._in_pool(client, lambda: ingest(client, command, reader), streaming=True)
                case _:
                    raise InvalidError(f"{name} takes no rows")
            answer = message("DoPutUpdateResult", record_count=count)
            writer.write(pa.py_buffer(answer.SerializeToString()))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        with as_flight_errors():
            client = self._client(context)
            if action.type not in (CREATE, CLOSE):
                raise InvalidError(f"no action named {action.type[:100]!r}", hint=f"{CREATE}, {CLOSE}")
            _, asked = unpacked(action.body.to_pybytes())
            if action.type == CLOSE:
                self._prepared.close(asked.prepared_statement_handle, client.user)
                return iter([])
            if asked.HasField("transaction_id") and asked.transaction_id:
                raise InvalidError("Flight SQL has no transactions here", hint="use BEGIN over PostgreSQL")
            return iter([flight.Result(pa.py_buffer(self._create(client, asked.query)))])

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [(CREATE, "Prepare a statement."), (CLOSE, "Forget a prepared statement.")]

    # -- statements -------------------------------------------------------------------

    def _client(self, context: Any) -> ClientSession:
        user, address = context.get_middleware(NAME).user, _address(context.peer())
        return self._serving.statements.client(user, "flight", address)

    def _in_pool(self, client: ClientSession, work: Callable[[], T], *, streaming: bool = False) -> T:
        """Run work in a thread of the server's pool; `streaming` work waits for its client."""
        running = client.in_thread(work, streaming=streaming)
        return asyncio.run_coroutine_threadsafe(running, self._loop).result()

    def _described(self, client: ClientSession, raw: bytes) -> tuple[pa.Schema, Any]:
        """The columns that a command gives, and the ticket with which its rows are fetched."""
        name, command = unpacked(raw)
        if name in catalog_commands.COMMANDS:
            return catalog_commands.schema_of(name, command), flight.Ticket(raw)
        if name == "CommandStatementQuery":
            prepared = PreparedText(command.query, client.user)
            schema = self._schema(client, prepared, describe=True)
            handle = self._prepared.add(prepared)
            return schema, flight.Ticket(packed("TicketStatementQuery", statement_handle=handle))
        if name == "CommandPreparedStatementQuery":
            prepared = self._prepared.get(command.prepared_statement_handle, client.user)
            return self._schema(client, prepared, describe=True), flight.Ticket(raw)
        raise InvalidError(f"{name} gives no rows")

    def _schema(self, client: ClientSession, prepared: PreparedText, *, describe: bool) -> pa.Schema:
        """The columns of a statement.  One that is no query runs now, once; its result is kept."""
        if is_query(prepared.text):
            if prepared.schema is None:
                prepared.schema = self._in_pool(client, lambda: described(client, prepared)).arrow().schema
            return prepared.schema
        if describe:
            prepared.result = self._in_pool(client, lambda: _run_all(client, prepared)[-1])
            return prepared.result.arrow().schema
        return NO_ROWS

    def _create(self, client: ClientSession, text: str) -> bytes:
        prepared = PreparedText(text, client.user)
        parameters = parameter_schema(text)
        schema = NO_ROWS if len(parameters) else self._schema(client, prepared, describe=False)
        return packed(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=self._prepared.add(prepared),
            dataset_schema=schema.serialize().to_pybytes() if len(schema) else b"",
            parameter_schema=parameters.serialize().to_pybytes() if len(parameters) else b"",
        )

    def _rows(self, client: ClientSession, prepared: PreparedText) -> Any:
        result, prepared.result = prepared.result, None
        if result is not None:
            return stream_of(result.arrow())
        tables = [r.arrow() for r in self._in_pool(client, lambda: _run_all(client, prepared))]
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        return stream_of(table)

    def _update(self, client: ClientSession, prepared: PreparedText) -> int:
        results = self._in_pool(client, lambda: _run_all(client, prepared))
        return sum(max(0, result.rowcount) for result in results)


def _address(peer: str) -> str:
    """The address in what gRPC says about a client.

    >>> _address("ipv4:127.0.0.1:5000"), _address("ipv6:%5B::1%5D:5000")
    ('127.0.0.1', '::1')
    """
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else rest


def _run_all(client: ClientSession, prepared: PreparedText) -> list[Result]:
    """Run a text once for each row of parameters; then other calls of the client see what it changed."""
    with one_request(client):
        results = client.execute_batch(prepared.text, list(prepared.runs()))
    with client.pool.lent() as session:
        client.wait_for_writes(session)
    return results


def described(client: ClientSession, prepared: PreparedText) -> Result:
    """The result of a query without its rows."""
    text = statements(prepared.text, "postgres")[0].sql
    values = next(prepared.runs())
    try:
        return client.execute(f"SELECT * FROM ({text}\n) AS described LIMIT 0", values)
    except InvalidError:
        return client.execute(text, values)  # AS OF at its end, or an error that points into the user's text


def is_query(text: str) -> bool:
    """Is a text one query, which has no effect?

    >>> is_query("SELECT 1"), is_query("INSERT INTO t VALUES (1)"), is_query("SELECT 1; SELECT 2")
    (True, False, False)
    """
    found = statements(text, "postgres")
    return len(found) == 1 and found[0].word(0) in READS
