"""A session: runs SQL statements over a pond, one after the other.

Law: definitions that follow each other in one text are one change of the plan.
It is committed before the next other statement runs and before `run` returns.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, Any

from millpond.errors import ConflictError, HeldError, InvalidError
from millpond.flow.builder import Builder
from millpond.plan.nodes import Plan
from millpond.secret_references import secrets_from
from millpond.sql.binding.catalog import Catalog, Shown, table_names
from millpond.sql.binding.functions import suggesting
from millpond.sql.diagnosis.statements import put_in_user_words
from millpond.sql.dialects.own_statements import own_statements
from millpond.sql.dml.change_outcome import wait_for_outcome
from millpond.sql.dml.text_changes import SessionChange, TextChanges
from millpond.sql.host import Host
from millpond.sql.pg_catalog.catalog_reads import CatalogReads, refuse_catalog
from millpond.sql.reads.limits import ReadLimits
from millpond.sql.reads.scratch import CachedScratch, Relations, Scratch, may_cache
from millpond.sql.result import Result
from millpond.sql.statements.flush import FLUSH_S
from millpond.sql.statements.prepared import Prepared
from millpond.sql.statements.registry import find
from millpond.sql.statements.session_variables import SessionVariables
from millpond.sql.text.parameters import Params
from millpond.sql.text.parse import LAX_SPARK, SPARK, SqlFragment
from millpond.sql.text.schema_names import PUBLIC, resolved
from millpond.sql.text.time_windows import MARK
from millpond.sql.text.time_zones import check_zone
from millpond.sql.transaction import SqlTransaction
from millpond.state.secret_files import SecretFiles

Stdin = str | bytes | IO[str] | IO[bytes] | None
TRIES = 10  # to change a plan that others change as well


class SqlSession:
    def __init__(self, host: Host) -> None:
        self.host = host
        self.on_progress: Callable[[Any], None] | None = None
        self.resolves_names = True  # or else statements come with stored names
        self._pending: Plan | None = None
        self._base: str | None = None
        self._uncommitted: list[tuple[SqlFragment, Params]] = []  # definitions since the last commit
        self._commits = 0  # how often all definitions were committed
        self._dropped = False
        self._read = False  # has an epoch been seen?
        self._shown = Shown()
        self._catalogs: list[Catalog] = []
        self._scratch: Scratch | None = None
        self._cached_scratch: CachedScratch | None = None
        self.transaction: SqlTransaction | None = None
        self.prepared: dict[str, Prepared] = {}
        self.catalog_reads = CatalogReads()
        self.variables = self._kept_variables = SessionVariables()  # SET LOCAL changes only the former
        self.spools_results = False  # does a large result go to a file instead of memory?
        self.lock = threading.RLock()
        self._limits = self._made_for = ReadLimits.of(host.settings, {})
        self._asked = threading.local()  # of the call of this thread: its limits, the changes of its text

    @property
    def read_limits(self) -> ReadLimits:
        """The limits of a SELECT in this thread."""
        limits: ReadLimits | None = getattr(self._asked, "limits", None)
        return replace(self._limits if limits is None else limits, spools=self.spools_results)

    def run(
        self,
        text: str,
        params: Params = None,
        dialect: str = "postgres",
        limits: Mapping[str, Any] | None = None,
        stdin: Stdin = None,
        ansi: bool | None = None,
    ) -> Result:
        """Run all statements of a text; the result of the last one, with the warnings of all.

        `limits` are settings of reads (`select_…`), only for this call; `stdin` is what COPY reads.
        `ansi` is the mode of Spark, in its dialect; without it the mode is the session's.
        """
        before, written = self.read_limits, self.host.last_written
        self._asked.stdin = stdin
        self._asked.ansi = ansi
        if limits:
            self._asked.limits = ReadLimits.of(self.host.settings, limits)
        try:
            results = list(self.run_each(text, params, spark_mode(dialect, ansi)))
        finally:
            self._asked.limits = before
            self._asked.stdin = self._asked.ansi = None
        if self.variables.implicit_flush and self.host.last_written != written:
            self.host.flush(timeout_s=FLUSH_S)
        last = results[-1] if results else Result.said("")
        last.warnings = [warning for result in results for warning in result.warnings]
        return last

    def run_each(self, text: str, params: Params = None, dialect: str = "postgres") -> Iterator[Result]:
        """Run the statements of a text one by one, and give the result of each.

        Definitions are committed together, before the next other statement or at the end.  Changes of rows
        are sent together, before the next statement that is neither a change nor a query, or at the end; if a
        statement fails before that, none is sent.  Results are given after that, so nothing is reported as
        done that was not.
        """
        if not isinstance(text, str):
            raise InvalidError("SQL is text", detail=f"got {type(text).__name__}")
        fragments = own_statements(text, dialect, _Known(self))
        results: list[Result] = []  # not given yet
        changes: TextChanges | None = None  # of this text, not sent yet
        sure = 0  # how many results do not depend on them
        only_reads = True
        for written in fragments:
            fragment = self._in_mode(written)
            if self.resolves_names:
                fragment = self.resolved(fragment, self.variables.search_path)
            statement, commits = find(fragment), self._commits
            only_reads = only_reads and statement.independent
            if fragment.word(0) in ("CREATE", "INSERT", "UPDATE", "DELETE", "MERGE"):
                refuse_catalog(fragment, self.catalog.objects)
            if changes is not None and not statement.joins_text:
                changes.send()
                changes = None
                yield from results
                results.clear()
            fresh = changes is None and statement.joins_text and len(fragments) > 1
            gathered = TextChanges(self.host) if fresh else changes
            try:
                with self._gathering(gathered):
                    result = self.run_one(fragment, params)
            except BaseException:
                if self._commits > commits:  # what was defined before it
                    yield from results if changes is None else results[:sure]
                raise
            if changes is None and gathered:
                changes, sure = gathered, len(results)
            results.append(result)
            is_change = statement.defines or changes is not None
            if not (is_change or (statement.independent and len(results) > 1)):
                yield from results
                results.clear()
        if changes is not None:
            changes.send()
        if self.transaction is None and not only_reads:
            with self.lock:
                self.commit()
        yield from results

    def _in_mode(self, fragment: SqlFragment) -> SqlFragment:
        """A statement of Spark in the mode of the session, unless the call has said which."""
        if fragment.dialect == SPARK and not self.variables.ansi and not getattr(self._asked, "ansi", None):
            return replace(fragment, dialect=LAX_SPARK)
        return fragment

    @contextmanager
    def _gathering(self, changes: TextChanges | None) -> Iterator[None]:
        """Gather the changes that this thread makes inside, instead of sending each."""
        before: TextChanges | None = getattr(self._asked, "gathered", None)
        self._asked.gathered = before if changes is None else changes
        try:
            yield
        finally:
            self._asked.gathered = before

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send the changes that this thread makes inside together, at the end; none if one is refused."""
        changes = TextChanges(self.host)
        with self._gathering(changes):
            yield
        changes.send()

    def take_stdin(self) -> bytes | None:
        """What the text's first COPY … FROM STDIN reads; None if nothing was given."""
        source: Stdin = getattr(self._asked, "stdin", None)
        self._asked.stdin = None
        text = source.read() if source is not None and not isinstance(source, str | bytes) else source
        return text.encode() if isinstance(text, str) else text

    def define_all(self, text: str, dialect: str = "postgres") -> None:
        """Run a text that has only definitions; those that the plan has with the same text are skipped."""
        for written in own_statements(text, dialect, _Known(self)):
            fragment = self.resolved(written, self.variables.search_path)
            if not find(fragment).defines:
                fragment.fail(
                    "a pipeline file has only definitions", 0, "millpond sql POND -f FILE runs any statement"
                )
            known = {**self.catalog.objects, **self.plan.objects}.values()
            if all(fragment.sql not in (o.said, *o.options.get("altered", ())) for o in known):
                self.run_one(fragment)
        with self.lock:
            self.commit()

    def set_variables(self, variables: SessionVariables, *, local: bool = False) -> None:
        """Change what SET changes; `local` until the transaction ends, and not at all outside of one."""
        if local and self.transaction is None:
            return
        self.variables = variables
        if not local:
            self._kept_variables = variables

    @property
    def time_zone(self) -> str:
        """The zone of times that name none, in the statements of this session."""
        return self.variables.time_zone

    def resolved(self, fragment: SqlFragment, path: tuple[str, ...]) -> SqlFragment:
        """A statement with the stored names of what it names, over a search path."""
        has_dots = any(token.text == "." for token in fragment.tokens)
        if path == (PUBLIC,) and not has_dots and fragment.word(0) != "ALTER":
            return fragment
        with self.lock:
            names = self.catalog.names(path)
        return resolved(fragment, names)

    def run_one(self, fragment: SqlFragment, params: Params = None) -> Result:
        block = self.transaction
        self._asked.said = fragment.said or fragment.sql
        try:
            return self._run_one(fragment, params) if block is None else self._run_in(block, fragment, params)
        except InvalidError as error:
            put_in_user_words(self, error, fragment)
            raise
        except RecursionError:
            raise InvalidError(
                "the statement is nested too deeply",
                hint="name a part of it: WITH part AS (SELECT …), or a view",
            ) from None

    def _run_in(self, block: SqlTransaction, fragment: SqlFragment, params: Params) -> Result:
        """Run a statement of a transaction; after one that fails, only its end can follow."""
        statement = find(fragment)
        if statement.controls and fragment.word(0) not in ("SAVEPOINT", "RELEASE"):
            return statement.run(self, fragment, params)
        if block.failed:
            raise InvalidError(
                "the transaction has failed, and waits for its end", hint="ROLLBACK, and run it again"
            )
        try:
            if statement.controls:
                return statement.run(self, fragment, params)
            if statement.alone or (statement.defines and not block.is_empty):
                raise InvalidError(
                    f"{fragment.word(0)} cannot follow other statements in a transaction"
                    if statement.defines
                    else f"{fragment.word(0)} {fragment.word(1)} cannot be part of a transaction",
                    hint="COMMIT first",
                )
            early = self._pending is not None and not statement.defines
            result = self._run_one(fragment, params)
            if early:
                block.unpin()
                result.warnings.append("the definitions of this transaction are committed already")
            return result
        except BaseException:
            block.failed = True
            raise

    def _run_one(self, fragment: SqlFragment, params: Params) -> Result:
        statement = find(fragment)
        check_zone(fragment, self.time_zone)
        if statement.independent:
            return statement.run(self, fragment, params)
        with self.lock:
            if not statement.defines:
                self.commit()
                if not (statement.outside_lock or statement.controls):
                    with suggesting(lambda: self.catalog.objects):
                        return statement.run(self, fragment, params)
        if statement.outside_lock or statement.controls:
            return statement.run(self, fragment, params)
        with self.lock:
            try:
                with suggesting(lambda: self.catalog.objects), secrets_from(self.secrets.value):
                    result = statement.run(self, fragment, params)
            except BaseException:
                if self.transaction is None:
                    self.commit()
                raise
            self._uncommitted.append((fragment, params))
            return result

    # -- transactions -----------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        return self.transaction is not None

    def begin(self, *, read_only: bool = False) -> SqlTransaction:
        """Begin a transaction: the statements that follow are part of it until it ends."""
        with self.lock:
            if self.transaction is not None:
                raise InvalidError("there is already a transaction in progress", hint="COMMIT or ROLLBACK it")
            self.commit()
            self._variables_before = self.variables
            self.transaction = SqlTransaction(self, read_only=read_only)
            return self.transaction

    @property
    def has_definitions(self) -> bool:
        """Are there definitions that are not committed, which only this session sees?"""
        return self._pending is not None

    def require_transaction(self, what: str) -> SqlTransaction:
        if self.transaction is None:
            raise InvalidError(f"{what} can only be used in a transaction", hint="BEGIN one first")
        return self.transaction

    def commit_transaction(self) -> int | None:
        """Execute the transaction in one epoch, and wait for it; returns the epoch, None if nothing changed.

        Raises ConflictError if it was aborted because of another one: nothing is applied then.
        The transaction has ended when this returns or raises.
        """
        block = self.require_transaction("COMMIT")
        if block.failed:
            self.rollback()
            raise InvalidError("the transaction has failed, and was rolled back")
        self.transaction = None
        self.variables = self._kept_variables
        try:
            with self.lock:
                self.commit()
        except BaseException:
            block.close()
            raise
        return block.commit()

    def rollback(self) -> None:
        """End the transaction without changing anything."""
        block, self.transaction = self.require_transaction("ROLLBACK"), None
        self.variables = self._kept_variables = self._variables_before
        with self.lock:
            self._pending, self._base, self._uncommitted, self._dropped = None, None, [], False
        block.close()

    def now_us(self) -> int:
        """The time of the running statement, which is that of its transaction."""
        return self.host.clock.now_us() if self.transaction is None else self.transaction.now_us

    def send_change(self, change: SessionChange, names: Sequence[tuple[str, str]]) -> Result:
        """Send a change of rows, or add it to the transaction or the text that it is part of."""
        verb = "INSERT" if change.rows is not None else str(change.args["verb"]).upper()
        said = getattr(self._asked, "said", None)
        if said not in (None, change.args.get("sql", said)):
            change.args["said"] = said  # for the reason, if it is refused when it is executed
        if self.transaction is not None:
            applied = self.transaction.change(change)
            return Result.changed(verb, applied.count, names, applied.rows)
        gathered: TextChanges | None = getattr(self._asked, "gathered", None)
        changes = TextChanges(self.host) if gathered is None else gathered
        position = changes.add(change)
        if gathered is None:
            changes.send()
        return Result.changed(
            verb, None, names, later=lambda: wait_for_outcome(self.host, *changes.sent(position))
        )

    def send_changes(self, changes: Sequence[SessionChange]) -> None:
        """Send the changes of one statement, which are executed in one epoch."""
        if self.transaction is not None:
            for change in changes:
                self.transaction.change(change)
            return
        gathered: TextChanges | None = getattr(self._asked, "gathered", None)
        together = TextChanges(self.host) if gathered is None else gathered
        for change in changes:
            together.add(change)
        if gathered is None:
            together.send()

    @property
    def secrets(self) -> SecretFiles:
        """The secrets of the pond."""
        return SecretFiles(self.host.store)

    # -- the program ------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        return self.host.program()[0] if self._pending is None else self._pending

    @property
    def catalog(self) -> Catalog:
        return self.catalog_of(self.plan)

    def catalog_of(self, plan: Plan) -> Catalog:
        cached = next((c for c in self._catalogs if c.plan is plan), None)
        if cached is None:
            cached = Catalog(plan, self._shown)
            self._catalogs = [cached, *self._catalogs[:3]]
        self._shown.binder.in_zone(self.time_zone)
        return cached

    def define(self, edit: Callable[[Builder], None]) -> None:
        """Add definitions to the next commit; nothing changes if `edit` fails."""
        if self._dropped:
            self.commit()  # a new object must not reuse the state of a dropped one of the same name
        with self._editing() as plan:
            builder = Builder()
            builder.reopen(plan, self.host.program()[0])
            edit(builder)
            self._pending = builder.plan

    def edit(self, edit: Callable[[Plan], Plan]) -> None:
        with self._editing() as plan:
            self._pending = edit(plan)
        self._dropped = True

    @contextmanager
    def _editing(self) -> Iterator[Plan]:
        """The plan that a definition edits; if the definition fails, it is restored."""
        if self.host.is_changing():
            raise InvalidError(
                "SQL cannot define inside `with pond.changing():`", hint="do it before or after the block"
            )
        before = self._pending, self._base
        if self._pending is None:
            self._pending, self._base = self.host.program()
        try:
            yield self._pending
        except BaseException:
            self._pending, self._base = before
            raise

    def commit(self) -> None:
        """Commit the definitions; if others changed the plan meanwhile, define them again over theirs."""
        for _ in range(TRIES):
            self._catch_up()
            plan, base = self._pending, self._base
            if plan is None or (not _begins(plan) and self.host.find_head() is None):
                self._commits += 1
                return
            said, self._uncommitted = self._uncommitted, []
            self._pending, self._base, self._dropped = None, None, False
            try:
                self.host.change(plan, on_progress=self.on_progress, base=base)
                self._commits += 1
                return
            except HeldError:
                raise
            except ConflictError:
                if not said or base is None:
                    raise
                for fragment, params in said:
                    self.run_one(fragment, params)
        raise ConflictError(
            "the program was changed several times meanwhile", hint="try again when they are done"
        )

    def _catch_up(self) -> None:
        """If another process made the pond meanwhile, define again over its plan what waits here."""
        waited, said = self._pending, self._uncommitted
        if waited is None or self._base is not None:
            return
        plan, base = self.host.program()
        if base is None:
            return  # there is still no pond, or what this process defined has not run yet
        for named in waited.objects.values():
            if named.options.get("language") == "python":
                plan = plan.with_object(named)
        self._pending, self._base, self._uncommitted = plan, base, []
        for fragment, params in said:
            self.run_one(fragment, params)

    # -- rows ---------------------------------------------------------------------------

    @property
    def scratch(self) -> Scratch:
        self._match_limits()
        if self._scratch is None:
            threads = max(1, min(4, os.cpu_count() or 1))
            self._scratch = Scratch(threads, self.host.clock, self.read_limits)
        return self._scratch.in_zone(self.time_zone)

    def _match_limits(self) -> None:
        """Close the databases if the limits of memory or disk changed: each keeps those it was made with."""
        asked = self.read_limits
        if (asked.memory_bytes, asked.spill_bytes) != (
            self._made_for.memory_bytes,
            self._made_for.spill_bytes,
        ):
            self.close()
        self._made_for = asked

    def close(self) -> None:
        """Close the databases of queries; the next query opens new ones."""
        with self.lock:
            for scratch in (self._scratch, self._cached_scratch):
                if scratch is not None:
                    scratch.close()
            self._scratch = self._cached_scratch = None

    def scratch_for(self, sql: str, shown: Relations) -> Scratch:
        """The database that answers a query over these relations with the least work."""
        if not may_cache(table_names(sql), shown):
            return self.scratch
        self._match_limits()
        if self._cached_scratch is None:
            self._cached_scratch = CachedScratch(1, self.host.clock, self.read_limits)
        return self._cached_scratch.in_zone(self.time_zone)

    def has_epoch(self) -> bool:
        """Is there an epoch to read?  Commits what is defined first."""
        self.commit()
        if self._read:
            return True
        if self.host.find_head() is None:
            if not _begins(self.plan):
                return False
            self.host.create_first_epoch()
        self._read = True
        return True

    def require_epoch(self) -> None:
        """Raise InvalidError if there is no epoch to read."""
        if not self.has_epoch():
            raise InvalidError("the pond has no epochs yet", hint="create a table first")


def spark_mode(dialect: str, ansi: bool | None) -> str:
    """The dialect of a text that is in a mode of Spark."""
    if ansi is None or (ansi and dialect == SPARK):
        return dialect
    if dialect != SPARK:
        raise InvalidError("ansi is a mode of the dialect 'spark'", hint='dialect="spark", ansi=False')
    return LAX_SPARK


def _begins(plan: Plan) -> bool:
    """Does a plan have anything to run?  Functions in Python alone wait for the definitions that use them."""
    objects = (o for o in plan.objects.values() if o.options.get("language") != "python")
    return bool(plan.nodes) or any(objects)


class _Known:
    """The objects of a session, for dialects that ask what a name is."""

    def __init__(self, session: SqlSession) -> None:
        self.session = session

    def kind(self, name: str) -> str | None:
        named = self.session.catalog.find(name)
        return None if named is None else named.kind

    def has_windows(self, name: str) -> bool:
        named = self.session.catalog.find(name)
        if named is None or named.kind != "view":
            return False
        return MARK in named.text or any(map(self.has_windows, named.uses))
