"""Runs the statements of one connection: those of the protocol itself, those about the catalog, and SQL.

Law: inside a transaction that has failed only its end is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from millpond.errors import InvalidError
from millpond.server.client_session import ClientSession
from millpond.server.pg_catalog.catalog_queries import CatalogQueries
from millpond.server.pgwire.cursors import Cursors
from millpond.server.pgwire.describe import CHANGES, QUERIES, describe, parameter_count, text_params
from millpond.server.pgwire.error_reports import PgError
from millpond.server.pgwire.joined_changes import Change
from millpond.server.pgwire.outcome import Outcome, PgStatement, StatementShape, of_rows
from millpond.server.pgwire.session_settings import SessionSettings
from millpond.server.pgwire.shape_cache import ShapeCache
from millpond.server.point_reads import NotOpenError, PointRow
from millpond.sql.binding.types import UTC
from millpond.sql.diagnosis.statements import put_in_user_words
from millpond.sql.result import Result
from millpond.sql.session import SqlSession
from millpond.sql.text.parse import SqlFragment, statements

ENDS = ("COMMIT", "END", "ROLLBACK", "ABORT")
BEGINS = ("BEGIN", "START")
CONTROL = (*BEGINS, *ENDS, "SAVEPOINT", "RELEASE")
SAID_MAX = 1024  # characters that pg_stat_activity shows, as in PostgreSQL
OnNotice = Callable[[str], None]


class StatementRunner:
    def __init__(
        self, client: ClientSession, settings: SessionSettings, catalog: CatalogQueries, shapes: ShapeCache
    ) -> None:
        self.client = client
        self.settings = settings
        self.catalog = catalog
        self.cursors = Cursors(client)
        self.prepared: dict[str, PgStatement] = {}  # by PREPARE and by Parse
        self._zones = (UTC, UTC)  # at the beginning of the transaction, and what COMMIT leaves
        self.said = ""  # the statement that runs, or the last one
        self._shapes = shapes

    @property
    def status(self) -> str:
        """The state of the transaction, as ReadyForQuery shows it."""
        if not self.client.in_transaction:
            return "I"
        return "E" if self.client.has_failed else "T"

    async def close(self) -> None:
        await self.cursors.close_all()
        self.client.close()

    # -- running ------------------------------------------------------------------------

    async def run(
        self, fragment: SqlFragment, params: Sequence[Any], on_notice: OnNotice, *, learn: bool = False
    ) -> Outcome:
        verb = fragment.word(0)
        self.said = fragment.sql[:SAID_MAX]
        if self.status == "E" and verb not in (*ENDS, "SAVEPOINT", "RELEASE"):
            raise PgError(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
                hint="ROLLBACK, and run it again",
            )
        try:
            return await self._run(verb, fragment, params, on_notice, learn)
        except BaseException:
            self.client.fail_transaction()
            raise

    async def point_row(self, prepared: PgStatement, params: Sequence[Any]) -> PointRow | None:
        """The row of a statement that reads one key; None if the statement must run as any other."""
        read = prepared.read
        if read is None or prepared.point_form() is None:
            return None
        try:
            found = self.client.point_row(read, params, in_loop=True)
        except NotOpenError:
            await self.client.pool.open_table(read.planned)
            try:
                found = self.client.point_row(read, params, in_loop=True)
            except NotOpenError:
                found = await self.client.in_thread(
                    lambda: self.client.point_row(read, params, in_loop=False)
                )
        if found is None:
            prepared.read = None
        return found

    async def run_prepared(
        self, prepared: PgStatement, params: Sequence[Any], on_notice: OnNotice
    ) -> Outcome:
        """Run a statement of the extended protocol; the next time it may be known to read one key."""
        assert prepared.fragment is not None
        made = await self.run(prepared.fragment, params, on_notice, learn=bool(params))
        prepared.read = self.client.allowed_read(prepared.text)
        return made

    async def run_together(self, changes: Sequence[Change]) -> list[Outcome]:
        """Run changes that follow each other: all of them in one epoch, or none."""
        self.said = changes[0][0].sql[:SAID_MAX]
        items = [(fragment, list(params) or None) for fragment, params in changes]
        results = await self.client.in_thread(lambda: self.client.execute_together(items))
        return [outcome_of(result, fragment) for result, (fragment, _) in zip(results, items, strict=True)]

    async def _run(
        self,
        verb: str,
        fragment: SqlFragment,
        params: Sequence[Any],
        on_notice: OnNotice,
        learn: bool = False,
    ) -> Outcome:
        match verb:
            case "SET":
                return self._set(fragment)
            case "RESET":
                name = None if fragment.word(1) == "ALL" else _setting_name(fragment, 1)
                name = "TimeZone" if fragment.has(1, "TIME", "ZONE") else name
                reports = self.settings.reset(name)
                self._zones = (self._zones[0], self.client.time_zone)
                return Outcome("RESET", reports=reports)
            case "SHOW" if (found := self._shown(fragment)) is not None:
                return found
            case "DISCARD":
                return await self._discard(fragment)
            case "DEALLOCATE":
                return self._deallocate(fragment)
            case "PREPARE":
                return self._prepare(fragment)
            case "EXECUTE":
                return await self._execute(fragment, on_notice)
            case "DECLARE":
                return await self._declare(fragment, params, on_notice)
            case "FETCH" | "MOVE":
                return await self.cursors.fetch(fragment)
            case "CLOSE":
                return await self.cursors.close(fragment)
            case "UNLISTEN":
                return Outcome("UNLISTEN")
            case "LISTEN" | "NOTIFY":
                raise PgError("0A000", f"{verb} is not supported", hint="SUBSCRIBE follows a view")
            case _ if verb in CONTROL:
                return await self._control(verb, fragment)
        if verb in QUERIES and self.catalog.answers(fragment):
            columns, table = await self.client.in_thread(
                lambda: self.catalog.run(self.client, self.settings, fragment, params)
            )
            return Outcome(f"SELECT {table.num_rows}", columns, table)
        result = await self.client.run(fragment, list(params) or None, on_notice=on_notice, learn=learn)
        return outcome_of(result, fragment)

    async def _control(self, verb: str, fragment: SqlFragment) -> Outcome:
        """BEGIN, COMMIT and their like; PostgreSQL only warns where there is nothing to begin or end."""
        inside, failed = self.client.in_transaction, self.client.has_failed
        if verb in BEGINS and inside:
            return Outcome("BEGIN", notices=["there is already a transaction in progress"])
        to_savepoint = verb == "ROLLBACK" and "TO" in fragment.words[1:3]
        if not inside and (to_savepoint or verb in ("SAVEPOINT", "RELEASE")):
            said = "ROLLBACK TO SAVEPOINT" if to_savepoint else verb
            raise PgError("25P01", f"{said} can only be used in transaction blocks", hint="BEGIN first")
        if verb in ENDS and not inside:
            return Outcome(_tag(verb), notices=["there is no transaction in progress"])
        if verb in ("COMMIT", "END") and failed:
            (fragment,), verb = statements("ROLLBACK", "postgres"), "ROLLBACK"
        result = await self.client.run(fragment)
        reports: list[tuple[str, str]] = []
        if verb in BEGINS:
            self._zones = (self.client.time_zone, self.client.time_zone)
        if verb in ENDS and not self.client.in_transaction:
            await self.cursors.end_transaction()
            reports = self.settings.set("TimeZone", self._zones[verb in ("COMMIT", "END")])
        return Outcome(_tag(verb), notices=list(result.warnings), reports=reports)

    # -- settings -----------------------------------------------------------------------

    def _set(self, fragment: SqlFragment) -> Outcome:
        at = 2 if fragment.word(1) in ("SESSION", "LOCAL") else 1
        if fragment.word(at) in ("CHARACTERISTICS", "TRANSACTION"):
            return Outcome("SET")
        if fragment.has(at, "TIME", "ZONE"):
            name, at = "TimeZone", at + 2
        elif fragment.has(at, "NAMES"):
            name, at = "client_encoding", at + 1
        elif fragment.has(at, "ROLE") or fragment.has(at, "AUTHORIZATION"):
            return Outcome("SET", notices=["the user of a connection does not change"])
        else:
            name, at = _setting_name(fragment, at), at + 1
            while fragment.word(at) == ".":
                name, at = f"{name}.{fragment.tokens[at + 1].text}", at + 2
            if fragment.word(at) not in ("=", "TO"):
                fragment.fail("= or TO should stand here", at)
            at += 1
        if at >= len(fragment):
            fragment.fail("a value should stand here", at)
        value = "".join(t.text + (" " if t.text == "," else "") for t in fragment.tokens[at:])
        self.settings.notices.clear()
        is_zone, is_local = name.lower() == "timezone", fragment.word(1) == "LOCAL"
        if is_zone and is_local and not self.client.in_transaction:
            return Outcome("SET", notices=["SET LOCAL can only be used in transaction blocks"])
        reports = self.settings.set(name, value)
        if is_zone and not is_local:
            self._zones = (self._zones[0], self.client.time_zone)
        return Outcome("SET", reports=reports, notices=list(self.settings.notices))

    def _shown(self, fragment: SqlFragment) -> Outcome | None:
        """SHOW of a setting; None if it is one of Millpond's own statements."""
        if fragment.has(1, "ALL") and len(fragment) == 2:
            rows = [(name, value, "") for name, value in self.settings.all()]
            return of_rows(["name", "setting", "description"], rows, "SHOW")
        words = " ".join(t.text for t in fragment.tokens[1:]).replace(" . ", ".")
        name = {"time zone": "TimeZone"}.get(words.lower(), words)
        value = self.settings.get(name)
        return None if value is None else of_rows([name], [(value,)], "SHOW")

    async def _discard(self, fragment: SqlFragment) -> Outcome:
        what = fragment.word(1)
        if what not in ("ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY"):
            fragment.fail("ALL, PLANS, SEQUENCES or TEMP should stand here", 1)
        reports = []
        if what == "ALL":
            if self.client.in_transaction:
                raise PgError("25001", "DISCARD ALL cannot run inside a transaction block")
            await self.cursors.close_all()
            self.prepared.clear()
            reports = self.settings.reset()
        return Outcome(f"DISCARD {what}", reports=reports)

    # -- statements by name --------------------------------------------------------------

    def _deallocate(self, fragment: SqlFragment) -> Outcome:
        at = 2 if fragment.word(1) == "PREPARE" else 1
        if fragment.word(at) == "ALL":
            self.prepared.clear()
            return Outcome("DEALLOCATE ALL")
        name = _setting_name(fragment, at)
        if self.prepared.pop(name, None) is None:
            raise PgError("26000", f'prepared statement "{name}" does not exist')
        return Outcome("DEALLOCATE")

    def _prepare(self, fragment: SqlFragment) -> Outcome:
        name = _setting_name(fragment, 1)
        at = fragment.bracket(2)[1] if fragment.word(2) == "(" else 2
        if fragment.word(at) != "AS":
            fragment.fail("AS should stand here", at)
        if name in self.prepared:
            raise PgError("42P05", f'prepared statement "{name}" already exists')
        (inner,) = statements(fragment.part(at + 1).sql, "postgres")
        self.prepared[name] = PgStatement(inner, ())
        return Outcome("PREPARE")

    async def _execute(self, fragment: SqlFragment, on_notice: OnNotice) -> Outcome:
        name = _setting_name(fragment, 1)
        known = self.prepared.get(name)
        if known is None or known.fragment is None:
            raise PgError("26000", f'prepared statement "{name}" does not exist')
        values: list[Any] = []
        if fragment.word(2) == "(":
            inner, _ = fragment.bracket(2)
            (asked,) = statements(f"SELECT {inner.sql}", "postgres")
            row = (await self.client.run(asked)).fetchone()
            values = list(row or ())
        return await self.run(known.fragment, values, on_notice)

    async def _declare(self, fragment: SqlFragment, params: Sequence[Any], on_notice: OnNotice) -> Outcome:
        at = fragment.find("FOR")
        if at is None:
            fragment.fail("FOR should follow", len(fragment))
            raise AssertionError
        options = fragment.words[2:at]
        name = fragment.tokens[1].text
        held = "HOLD" in options and "WITHOUT" not in options
        if not held and not self.client.in_transaction and fragment.word(at + 1) != "SUBSCRIBE":
            raise PgError(
                "25P01", "DECLARE CURSOR can only be used in transaction blocks", hint="BEGIN first"
            )
        made = await self.run(fragment.part(at + 1), params, on_notice)
        scrolls = "NO" not in options  # NO SCROLL
        self.cursors.declare(name, made, held=held, binary="BINARY" in options, scrolls=scrolls)
        return Outcome("DECLARE CURSOR")

    # -- describing ---------------------------------------------------------------------

    async def describe(self, prepared: PgStatement) -> StatementShape:
        """The parameters and columns of a statement."""
        if prepared.shape is None:
            prepared.shape = await self._describe(prepared)
        return prepared.shape

    async def _describe(self, prepared: PgStatement) -> StatementShape:
        fragment, declared = prepared.fragment, prepared.declared
        if fragment is None:
            return StatementShape(tuple(declared), None)
        verb = fragment.word(0)
        if verb in QUERIES and self.catalog.answers(fragment):
            return await self.client.in_thread(
                lambda: self.catalog.describe(self.client, self.settings, fragment, declared)
            )
        params = text_params(parameter_count(fragment), declared)
        if verb in (*QUERIES, *CHANGES):
            return await self.client.in_thread(lambda: self._described(fragment, declared))
        if verb == "FETCH":
            return StatementShape(params, tuple(self.cursors.named(fragment).columns))
        if verb == "EXPLAIN":
            return StatementShape(params, (("plan", "VARCHAR"),))
        if verb in ("SHOW", "DESCRIBE", "DESC", "SUBSCRIBE"):  # they only read: running shows the columns
            made = await self._run(verb, fragment, [None] * len(params), lambda text: None)
            return StatementShape(params, None if made.columns is None else tuple(made.columns))
        if verb == "EXECUTE" and (known := self.prepared.get(fragment.tokens[1].text)) is not None:
            return StatementShape(params, (await self.describe(known)).columns)
        return StatementShape(params, None)

    def _described(self, fragment: SqlFragment, declared: tuple[int, ...]) -> StatementShape:
        def make(session: SqlSession) -> StatementShape:
            named = session.resolved(fragment, self.client.search_path)
            try:
                return self._shapes.of(session, named, declared, describe)
            except InvalidError as error:
                put_in_user_words(session, error, fragment)
                raise

        return self.client.with_session(make)


def outcome_of(result: Result, fragment: SqlFragment) -> Outcome:
    """A result of SQL as clients of PostgreSQL expect it."""
    tag = re.sub(r"[: ].*", "", result.status).replace("_", " ") if not result.columns else result.status
    verb = fragment.word(0)
    notices = list(result.warnings)
    if not result.columns and result.status.startswith(CHANGES):
        tag = result.status
    elif not result.columns and ":" in result.status:
        notices.append(result.status.replace("_", " "))
    if verb in ("SHOW", "EXPLAIN"):
        tag = verb
    if not result.columns:
        return Outcome(tag, notices=notices)
    columns = list(zip(result.columns, result.types, strict=True))
    if result.streams:
        return Outcome("SUBSCRIBE", columns, stream=result, notices=notices)
    return Outcome(tag, columns, result.arrow(), notices=notices)


def _tag(verb: str) -> str:
    return {"START": "BEGIN", "END": "COMMIT", "ABORT": "ROLLBACK"}.get(verb, verb)


def _setting_name(fragment: SqlFragment, at: int) -> str:
    if at >= len(fragment):
        fragment.fail("a name should stand here", at)
    return str(fragment.tokens[at].text)
