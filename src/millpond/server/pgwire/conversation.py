"""One connection after its login: turns messages into statements, and outcomes into messages.

Law: after an error in the extended protocol every message is ignored until Sync.  After each Query and each
Sync the client is told, exactly once, that the server is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pyarrow as pa

from millpond.errors import MillpondError
from millpond.server.change_groups import joins
from millpond.server.client_session import fragments_of
from millpond.server.pgwire import messages as m
from millpond.server.pgwire.copy_in import receive_copy
from millpond.server.pgwire.copy_out import send_copy
from millpond.server.pgwire.data_rows import RowEncoder
from millpond.server.pgwire.describe import QUERIES
from millpond.server.pgwire.error_reports import PgError, error_response, notice
from millpond.server.pgwire.joined_changes import JoinedChanges, rolls_back
from millpond.server.pgwire.outcome import (
    Outcome,
    PgPortal,
    PgStatement,
    expanded,
    fields_of,
    oids,
)
from millpond.server.pgwire.parameter_values import value_of
from millpond.server.pgwire.result_types import as_described
from millpond.server.pgwire.statement_runner import ENDS, StatementRunner
from millpond.server.pgwire.subscription import SubscriptionPump
from millpond.server.pgwire.transport import ClientGoneError, PgTransport
from millpond.server.point_reads import PointRow
from millpond.sql.copy.copy_statement import CopyStatement, parse_copy
from millpond.sql.text.parse import SqlFragment, statements

PARAMS_MAX = 65_535
SHORT_TEXT = 10_000  # characters that are read on the event loop: below a few milliseconds
FEW_ROWS = 200  # are encoded at once; more are encoded beside the event loop
NextMessage = Callable[[], Awaitable[m.ClientMessage]]


class Conversation:
    def __init__(self, runner: StatementRunner, transport: PgTransport, next_message: NextMessage) -> None:
        self.runner = runner
        self.transport = transport
        self._next = next_message
        self._portals: dict[str, PgPortal] = {}
        self.is_skipping = False  # after an error, until Sync
        self.joined = JoinedChanges()  # of this pipeline, not sent yet
        self._loop = asyncio.get_running_loop()
        runner.cursors.open_portal = self._opened

    async def handle(self, message: m.ClientMessage) -> None:
        """Answer one message."""
        if self.is_skipping and not isinstance(message, m.Sync | m.SimpleQuery | m.Terminate):
            return
        if self.joined and isinstance(message, m.ExecutePortal) and self._gives_up(message.portal):
            self.transport.put(self.joined.discarded())
        if self.joined and not self._may_join(message):
            ran = await self._run_joined()
            if not ran and not isinstance(message, m.Sync | m.SimpleQuery):
                return
        match message:
            case m.SimpleQuery():
                self.is_skipping = False
                await self._simple(message.text)
            case m.Sync():
                self.is_skipping = False
                if self.runner.status == "I":
                    self.forget_portals()
                await self._ready()
            case m.Flush():
                await self.transport.flush()
            case m.CopyDataIn() | m.CopyDone() | m.CopyFail():
                pass  # of a COPY that has failed already
            case m.FunctionCall():
                await self._refused(
                    PgError("0A000", "function calls by message are not supported", hint="use SELECT")
                )
            case m.BrokenMessage(kind, error) if kind in (b"Q", b"F", b"S"):
                self.is_skipping = False
                await self._refused(error)
            case _:
                try:
                    await self._extended(message)
                except ClientGoneError:
                    raise
                except (MillpondError, Exception) as error:
                    await self._failed(error)

    async def _failed(self, error: Exception) -> None:
        """The answer to a message of the extended protocol that fails; what it is joined with is not sent."""
        self.joined.clear()
        self.is_skipping = True
        self.runner.client.fail_transaction()
        self.transport.put(error_response(error))
        await self.transport.flush()  # clients wait for it before they send Sync

    # -- changes that follow each other ---------------------------------------------------

    def _put(self, answer: bytes) -> None:
        """An answer of the extended protocol, behind those that wait for changes."""
        if self.joined:
            self.joined.put(answer)
        else:
            self.transport.put(answer)

    def _may_join(self, message: m.ClientMessage) -> bool:
        """Can the changes that wait, wait on: does the message neither end the pipeline nor read?"""
        match message:
            case m.ExecutePortal():
                found = self._portals.get(message.portal)
                return found is not None and not found.done and joins(found.statement.fragment)
            case m.Describe(kind="P"):
                found = self._portals.get(message.name)
                return found is not None and joins(found.statement.fragment)
            case m.Describe():
                prepared = self.runner.prepared.get(message.name)
                return prepared is not None and joins(prepared.fragment)
            case m.Bind():
                prepared = self.runner.prepared.get(message.statement)
                return prepared is not None and (joins(prepared.fragment) or rolls_back(prepared.fragment))
            case _:
                return isinstance(message, m.Parse | m.CloseNamed)

    def _gives_up(self, portal: str) -> bool:
        """Is this the ROLLBACK with which a client gives up a pipeline before its Sync?"""
        found = self._portals.get(portal)
        return found is not None and rolls_back(found.statement.fragment)

    async def _run_joined(self) -> bool:
        """Run the changes that wait, and give their answers; False if they failed."""
        joined = self.joined
        try:
            if len(joined.changes) == 1:
                made = [await self.runner.run(*joined.changes[0], self._notice)]
            else:
                made = await self.runner.run_together(joined.changes)
        except (MillpondError, Exception) as error:
            await self._failed(error)
            return False
        for outcome in made:
            self._send_notices(outcome)
        self.transport.put(joined.answers([outcome.tag for outcome in made]))
        joined.clear()
        return True

    async def _refused(self, error: Exception) -> None:
        """The answer to a message that is a whole request, as a Query is."""
        self.runner.client.fail_transaction()
        self.transport.put(error_response(error))
        await self._ready()

    def forget_portals(self) -> None:
        """What Sync does outside of a transaction."""
        self._portals.clear()

    async def _ready(self) -> None:
        self.transport.put(m.ready(self.runner.status))
        await self.transport.flush()

    def _notice(self, text: str) -> None:
        """Called in the thread of a statement: tells the client how far it is."""

        def tell() -> None:
            self.transport.put(notice(text))
            self.transport.send()

        self._loop.call_soon_threadsafe(tell)

    # -- simple queries -----------------------------------------------------------------

    async def _simple(self, text: str) -> None:
        start = 0
        try:
            fragments = await self._split(text)
            if not fragments:
                self.transport.put(m.EMPTY_QUERY)
            left = list(fragments)
            while left:
                if len(changes := self._leading_changes(left)) > 1:
                    start = left[0][0]
                    del left[: len(changes)]
                    for outcome in await self.runner.run_together([(one, ()) for one in changes]):
                        self._send_notices(outcome)
                        self.transport.put(m.command_complete(outcome.tag))
                    continue
                start, own = left.pop(0)
                if own.word(0) == "COPY":
                    await self._copy(parse_copy(await self._resolved(own)))
                    continue
                outcome = await self.runner.run(own, (), self._notice)
                self._send_notices(outcome)
                if outcome.columns is not None:
                    self.transport.put(m.row_description(fields_of(outcome.columns, ())))
                await self._all_rows(outcome, ())
        except ClientGoneError:
            raise
        except (MillpondError, Exception) as error:
            self.runner.client.fail_transaction()
            self.transport.put(error_response(error, start=start))
        await self._ready()

    def _leading_changes(self, left: Sequence[tuple[int, SqlFragment]]) -> list[SqlFragment]:
        """The changes of rows at the begin of a text that are one transaction."""
        if self.runner.status != "I":
            return []
        return [own for _, own in itertools.takewhile(lambda found: joins(found[1]), left)]

    async def _split(self, text: str) -> list[tuple[int, SqlFragment]]:
        """The statements of a text and where each begins; a long text is read in a thread."""

        def split() -> list[tuple[int, SqlFragment]]:
            return [(found.start, _own_text(found)) for found in fragments_of(text, "postgres")]

        return split() if len(text) <= SHORT_TEXT else await self.runner.client.in_thread(split)

    async def _resolved(self, fragment: SqlFragment) -> SqlFragment:
        client = self.runner.client
        return await client.in_thread(lambda: client.resolved(fragment))

    def _send_notices(self, outcome: Outcome) -> None:
        for text in outcome.notices:
            self.transport.put(notice(text))
        for name, value in outcome.reports:
            self.transport.put(m.parameter_status(name, value))

    async def _all_rows(self, outcome: Outcome, formats: tuple[int, ...]) -> None:
        if outcome.stream is not None:
            await self._stream(outcome, formats)
        elif outcome.table is not None and outcome.columns is not None:
            await self._rows(outcome, formats, outcome.table)
        self.transport.put(m.command_complete(outcome.tag))

    async def _rows(self, outcome: Outcome, formats: tuple[int, ...], table: pa.Table) -> None:
        encoder = RowEncoder(outcome.types, expanded(formats, table.num_columns))
        if table.num_rows <= FEW_ROWS:
            for data in encoder.messages(table):
                self.transport.put(data)
            await self.transport.flush_if_large()
            return
        async for data in self.runner.client.pool.encoded(encoder.messages(table)):
            self.transport.put(data)
            await self.transport.flush_if_large()

    async def _stream(self, outcome: Outcome, formats: tuple[int, ...]) -> None:
        """The rows of a subscription as they come, until it is cancelled or the client goes."""
        assert outcome.stream is not None
        pump = SubscriptionPump(self.runner.client, outcome.stream)
        try:
            await self.transport.flush()
            while (table := await self.runner.client.cancellable(pump.next(), pump.cancel)) is not None:
                await self._rows(outcome, formats, table)
                await self.transport.flush()
        finally:
            await pump.close()

    # -- the extended protocol ------------------------------------------------------------

    async def _extended(self, message: m.ClientMessage) -> None:
        match message:
            case m.Parse():
                await self._parse(message)
            case m.Bind():
                await self._bind(message)
            case m.Describe():
                await self._describe(message)
            case m.ExecutePortal():
                await self._execute(message)
            case m.CloseNamed():
                (self._portals if message.kind == "P" else self.runner.prepared).pop(message.name, None)
                self._put(m.CLOSE_COMPLETE)
            case m.BrokenMessage():
                raise message.error
            case _:
                raise m.ProtocolError("this message is not expected here")

    async def _parse(self, message: m.Parse) -> None:
        if message.name and message.name in self.runner.prepared:
            raise PgError("42P05", f'prepared statement "{message.name}" already exists')
        fragments = await self._split(message.text)
        if len(fragments) > 1:
            raise PgError("42601", "cannot insert multiple commands into a prepared statement")
        fragment = fragments[0][1] if fragments else None
        if self.runner.status == "E" and fragment is not None and fragment.word(0) not in ENDS:
            raise PgError(
                "25P02", "current transaction is aborted, commands ignored until end of transaction block"
            )
        made = PgStatement(fragment, message.types)
        made.parse = m.parse_bytes(message)
        if fragment is not None:
            made.text = fragment.sql
            made.read = self.runner.client.allowed_read(made.text)
        self.runner.prepared[message.name] = made
        self._put(m.PARSE_COMPLETE)

    def _prepared(self, name: str) -> PgStatement:
        found = self.runner.prepared.get(name)
        if found is None:
            raise PgError("26000", f'prepared statement "{name}" does not exist')
        return found

    async def _bind(self, message: m.Bind) -> None:
        prepared = self._prepared(message.statement)
        if message.portal and message.portal in self._portals:
            raise PgError("42P03", f'cursor "{message.portal}" already exists')
        types = prepared.declared
        if len(types) < len(message.values) or any(oid in (0, 705) for oid in types):
            if prepared.read is not None and prepared.read.planned.plan is not None:
                types = oids(prepared.read.planned.plan.parameter_types, types)
            else:
                types = (await self.runner.describe(prepared)).params
        if len(types) != len(message.values):
            raise PgError(
                "08P01",
                f"bind message supplies {len(message.values)} parameters, "
                f'but prepared statement "{message.statement}" requires {len(types)}',
            )
        formats = expanded(message.formats, len(message.values))
        zone = self.runner.client.time_zone
        params = [
            value_of(data, oid, form, zone)
            for data, oid, form in zip(message.values, types, formats, strict=True)
        ]
        self._portals[message.portal] = PgPortal(prepared, params, message.result_formats)
        self._put(m.BIND_COMPLETE)

    def _portal(self, name: str) -> PgPortal:
        found = self._portals.get(name)
        if found is None:
            raise PgError("34000", f'portal "{name}" does not exist')
        return found

    async def _describe(self, message: m.Describe) -> None:
        portal: PgPortal | None = None
        if message.kind == "S":
            prepared = self._prepared(message.name)
            shape = await self.runner.describe(prepared)
            self._put(m.parameter_description(shape.params))
            columns: Any = shape.columns
            formats: tuple[int, ...] = ()
        elif message.name not in self._portals and self.runner.cursors.columns_of(message.name) is not None:
            columns, formats = self.runner.cursors.columns_of(message.name), ()
        else:
            portal = self._portal(message.name)
            fragment = portal.statement.fragment
            shape_known = portal.statement.shape
            if (row := await self._point_row(portal)) is not None:
                columns = list(zip(row.plan.names, row.plan.types, strict=True))
            elif shape_known is not None:
                columns = shape_known.columns
            elif fragment is not None and fragment.word(0) in _ONLY_READ:
                columns = (await self._outcome(portal)).columns
            else:
                columns = (await self.runner.describe(portal.statement)).columns
            formats = portal.formats
        if columns is None:
            self._put(m.NO_DATA)
        else:
            self._check_formats(formats, len(columns))
            if portal is not None and portal.row is not None:
                self._put(portal.statement.row_description(columns, formats))
            else:
                self._put(m.row_description(fields_of(columns, formats)))

    async def _point_row(self, portal: PgPortal) -> PointRow | None:
        """The row of a portal whose statement reads one key, if it can be read at once."""
        if portal.row is None and portal.outcome is None and portal.statement.read is not None:
            portal.row = await self.runner.point_row(portal.statement, portal.params)
        return portal.row

    @staticmethod
    def _check_formats(formats: tuple[int, ...], count: int) -> None:
        if len(formats) not in (0, 1, count):
            raise PgError("08P01", f"there are {len(formats)} result formats for {count} columns")

    async def _opened(self, name: str) -> PgPortal | None:
        """A portal with its rows, for FETCH and MOVE: a cursor is a portal, and the other way round."""
        portal = self._portals.get(name)
        if portal is None or portal.statement.fragment is None:
            return None
        if portal.statement.fragment.word(0) in QUERIES:
            await self._outcome(portal)
        return portal

    async def _outcome(self, portal: PgPortal) -> Outcome:
        """Run the statement of a portal, once."""
        if portal.outcome is None:
            assert portal.statement.fragment is not None
            made = await self.runner.run_prepared(portal.statement, portal.params, self._notice)
            shape = portal.statement.shape
            if shape is not None and shape.columns is not None and made.columns is not None:
                made = as_described(made, shape.columns)
            portal.outcome = made
            self._send_notices(made)
        return portal.outcome

    async def _execute(self, message: m.ExecutePortal) -> None:
        portal = self._portal(message.portal)
        fragment = portal.statement.fragment
        if fragment is None:
            self._put(m.EMPTY_QUERY)
            return
        if fragment.word(0) == "COPY":
            await self._copy(parse_copy(await self._resolved(fragment)))
            return
        if self.runner.status == "I" and not portal.done and portal.outcome is None and joins(fragment):
            if self.joined.is_full and not await self._run_joined():
                return
            self.joined.add((fragment, portal.params))
            portal.done = True
            return
        if (row := await self._point_row(portal)) is not None:
            self._one_row(portal, row, message.rows_max)
            return
        if portal.done:
            raise PgError("55000", f'portal "{message.portal}" cannot be run')
        outcome = await self._outcome(portal)
        if outcome.columns is not None:
            self._check_formats(portal.formats, len(outcome.columns))
        if outcome.stream is not None:
            await self._all_rows(outcome, portal.formats)
            return
        if outcome.table is None:
            portal.done = True
            self.transport.put(m.command_complete(outcome.tag))
            return
        at = min(portal.at, outcome.table.num_rows)
        left = outcome.table.num_rows - at
        count = left if not message.rows_max else min(left, message.rows_max)
        await self._rows(outcome, portal.formats, outcome.table.slice(at, count))
        portal.at = at + count
        if message.rows_max and count == message.rows_max:
            self.transport.put(m.PORTAL_SUSPENDED)
        else:
            tag = f"SELECT {count}" if outcome.tag.startswith("SELECT") else outcome.tag
            self.transport.put(m.command_complete(tag))

    def _one_row(self, portal: PgPortal, row: PointRow, rows_max: int) -> None:
        self._check_formats(portal.formats, len(row.plan.types))
        count = 0 if row.cells is None or portal.at else 1
        if count and row.cells is not None:
            encoder = portal.statement.encoder(row.plan, portal.formats)
            self.transport.put(encoder.message(row.cells))
            portal.at = 1
        suspended = count and rows_max == 1
        self.transport.put(m.PORTAL_SUSPENDED if suspended else m.command_complete(f"SELECT {count}"))

    # -- COPY ---------------------------------------------------------------------------

    async def _copy(self, copy: CopyStatement) -> None:
        if self.runner.status == "E":
            raise PgError("25P02", "current transaction is aborted, commands ignored until its end")
        if copy.into:
            count = await receive_copy(self.runner, self.transport, copy, self._next)
        else:
            count = await send_copy(self.runner, self.transport, copy, self._notice)
        self.transport.put(m.command_complete(f"COPY {count}"))

    async def close(self) -> None:
        with contextlib.suppress(MillpondError):
            await self.runner.close()


_ONLY_READ = (
    "SELECT",
    "WITH",
    "VALUES",
    "TABLE",
    "FROM",
    "(",
    "SHOW",
    "DESCRIBE",
    "DESC",
    "SUBSCRIBE",
    "EXPLAIN",
)


def _own_text(fragment: SqlFragment) -> SqlFragment:
    """The fragment alone, so that positions count from its own begin."""
    if fragment.sql == fragment.text:
        return fragment
    (found,) = statements(fragment.sql, "postgres")
    return found
