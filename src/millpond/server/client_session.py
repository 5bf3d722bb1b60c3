"""One client of a server: runs its statements, reads its own writes, and can be cancelled.

Law: a SELECT sees every change that the same client made before it, unless the client asked otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from millpond.cancellation import Cancellation, cancelled_by
from millpond.errors import InvalidError
from millpond.server.authentication import ServedUser
from millpond.server.change_groups import Asked, leading_changes
from millpond.server.metrics.activity import outcome_of, verb_of
from millpond.server.point_reads import PlannedRead, PointRow
from millpond.sql.binding.types import UTC
from millpond.sql.result import Result
from millpond.sql.session import SqlSession
from millpond.sql.text.parameters import Params
from millpond.sql.text.parse import SqlFragment, statements
from millpond.sql.text.schema_names import PUBLIC
from millpond.state.access_rules import CONNECTIONS, STATEMENT_MS

if TYPE_CHECKING:
    from millpond.server.statements import StatementPool

READS_MAX = 256  # statements of a client that are known to read one key

TEXT_MAX = 4_000_000  # characters of a text: reading more would hold up the other clients

T = TypeVar("T")
OnNotice = Callable[[str], None]
TIMED_OUT = "the statement took longer than the statement timeout"
CANCELLED = "the statement was cancelled by its user"
READS = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "(")
PURE = (*READS, "SHOW", "EXPLAIN", "DESCRIBE", "DESC", "SUBSCRIBE")  # never need an epoch that is to come


@dataclass(frozen=True)
class AllowedRead:
    """A statement that reads one key, and the rules by which the client may run it."""

    text: str
    planned: PlannedRead
    rules: object


class ClientSession:
    """Use `await run(...)` on the event loop, or `execute(...)` in a thread of your own."""

    def __init__(self, pool: StatementPool, user: ServedUser, protocol: str, address: str = "") -> None:
        self.pool = pool
        self.user = user
        self.protocol = protocol
        self.who = user.name, protocol, address
        self.read_your_writes = pool.settings.read_your_writes
        self.statement_ms_max = pool.settings.statement_ms_max
        self.search_path: tuple[str, ...] = (PUBLIC,)
        self.time_zone = UTC
        self.backend_pid = 0  # the number of the connection, where the protocol has one
        self.limits: dict[str, int] = {}  # settings of reads (`select_…`) for this client
        if pool.settings.result_rows_max:
            self.limits["select_rows_max"] = pool.settings.result_rows_max
        self._user_limits = pool.authorizer.limits(user)  # read again for each statement
        self._written: int | None = None  # the newest inbox entry of this client
        self._cancellation: Cancellation | None = None
        self._held: SqlSession | None = None  # of a transaction
        self._reads: OrderedDict[str, AllowedRead] = OrderedDict()  # by text

    @property
    def in_transaction(self) -> bool:
        return self._held is not None

    @property
    def has_failed(self) -> bool:
        """Has a statement of the transaction failed, so that only its end can follow?"""
        block = None if self._held is None else self._held.transaction
        return block is not None and bool(block.failed)

    def fail_transaction(self) -> None:
        """A statement of the transaction failed, perhaps before it reached SQL."""
        block = None if self._held is None else self._held.transaction
        if block is not None:
            block.failed = True

    @property
    def is_running(self) -> bool:
        """Does a statement of this client run?"""
        return self._cancellation is not None

    async def run(
        self,
        text: str | SqlFragment,
        params: Params = None,
        *,
        dialect: str = "postgres",
        limits: Mapping[str, Any] | None = None,
        on_notice: OnNotice | None = None,
        learn: bool = False,
    ) -> Result:
        """Run a text in a thread of the pool; the result of its last statement.

        `on_notice` is called in that thread.  `learn` finds out whether the statement reads one key.
        """

        def work() -> Result:
            made = self.execute(text, params, dialect=dialect, limits=limits, on_notice=on_notice)
            if learn and isinstance(text, SqlFragment) and text.word(0) == "SELECT":
                self.learn(text)
            return made

        return await self.in_thread(work)

    async def in_thread(self, work: Callable[[], T], *, streaming: bool = False) -> T:
        """Run any work of this client in a thread, within its statement timeout; `cancel` ends it."""
        cancellation = self._cancellation = Cancellation()
        timer = None
        if (limit_ms := self.statement_limit_ms()) and not streaming:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(limit_ms / 1000, cancellation.cancel, TIMED_OUT)
        try:
            with self._place():
                return await self.pool.in_thread(work, cancellation, streaming=streaming)
        except asyncio.CancelledError:
            cancellation.cancel(CANCELLED)
            raise
        finally:
            self._cancellation = None
            if timer is not None:
                timer.cancel()

    def _place(self) -> contextlib.AbstractContextManager[None]:
        """A place of the user for one request; a PostgreSQL connection has one as long as it lasts."""
        if self.protocol == "pg":
            return contextlib.nullcontext()
        return self.place()

    def place(self) -> contextlib.AbstractContextManager[None]:
        """Take one of the connections that the user may have."""
        limit = self._user_limits.get(CONNECTIONS)
        return self.pool.connections.counted(self.user.name, limit)

    @property
    def user_limits(self) -> Mapping[str, int]:
        """The limits of its user, by their names in SQL."""
        return self._user_limits

    def statement_limit_ms(self) -> int:
        """The time that a statement may take: what the client asked for, within the limit of its user."""
        return _least(self.statement_ms_max, self._user_limits.get(STATEMENT_MS))

    def read_limits(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The limits of a SELECT: what the client asked for, within those of its user."""
        found, settings = dict(asked), self.pool.pond.settings
        for name, limit in self._user_limits.items():
            if name.startswith("select_"):
                found[name] = _least(found.get(name, getattr(settings, name)), limit)
        return found

    def execute(
        self,
        text: str | SqlFragment,
        params: Params = None,
        *,
        dialect: str = "postgres",
        limits: Mapping[str, Any] | None = None,
        on_notice: OnNotice | None = None,
        cancellation: Cancellation | None = None,
    ) -> Result:
        """Run a text in this thread; the result of its last statement, with the warnings of all."""
        within = contextlib.nullcontext() if cancellation is None else cancelled_by(cancellation)
        fragments = _fragments(text, dialect)
        with within, self._session(on_notice) as session:
            results = self._all(session, [(fragment, params) for fragment in fragments], limits)
        last = results[-1] if results else Result.said("")
        last.warnings = [warning for result in results for warning in result.warnings]
        return last

    def execute_batch(self, text: str, batch: Sequence[Params]) -> list[Result]:
        """Run a text once for each of some parameters, in this thread; the results of its last statement."""
        fragments = _fragments(text, "postgres")
        if not fragments:
            return [Result.said("") for _ in batch]
        with self._session(None) as session:
            results = self._all(session, [(one, params) for params in batch for one in fragments], None)
        return results[len(fragments) - 1 :: len(fragments)]

    def execute_together(self, changes: Sequence[Asked]) -> list[Result]:
        """Run changes of rows that follow each other, in this thread: all in one epoch, or none."""
        with self._session(None) as session:
            return self._together(session, changes, None)

    def _all(
        self, session: SqlSession, asked: Sequence[Asked], limits: Mapping[str, Any] | None
    ) -> list[Result]:
        """Run statements in their order; changes that follow each other are executed together."""
        results: list[Result] = []
        while len(results) < len(asked):
            changes = () if session.in_transaction else leading_changes(asked, len(results))
            if changes:
                results += self._together(session, changes, limits)
            else:
                results.append(self._one(session, *asked[len(results)], limits))
        return results

    def _together(
        self, session: SqlSession, changes: Sequence[Asked], limits: Mapping[str, Any] | None
    ) -> list[Result]:
        failed: Exception | None = None
        started = time.perf_counter()
        found = [(session.resolved(written, self._path(session)), params) for written, params in changes]
        before = session.host.last_written
        try:
            for fragment, _ in found:
                self.pool.authorizer.check(self.user, fragment, session)
            self._user_limits = self.pool.authorizer.limits(self.user)
            wanted = self.read_limits({**self.limits, **(limits or {})}) or None
            self.pool.pipeline.ensure()
            with session.together():
                results = [session.run(f.sql, params, f.dialect, wanted) for f, params in found]
            for result in results:
                _ = result.rowcount  # waits until the change is executed
            return results
        except Exception as error:
            failed = error
            raise
        finally:
            if session.host.last_written != before:
                self._written = session.host.last_written
            seconds = (time.perf_counter() - started) / len(found)
            for fragment, _ in found:
                verb = verb_of(fragment.sql)
                self.pool.audit.ran(self.who, verb, fragment.sql, failed, seconds)
                self.pool.activity.ran(self.protocol, verb, outcome_of(failed), seconds)

    # -- reads of one key ---------------------------------------------------------------

    def allowed_read(self, text: str) -> AllowedRead | None:
        """A statement that this client has run before and that reads one key."""
        return self._reads.get(text)

    def learn(self, written: SqlFragment) -> None:
        """Find out whether a statement reads one key, after it was run; in a thread."""
        if self.in_transaction or self.search_path != (PUBLIC,):
            return
        with self._session(None) as session:
            fragment = session.resolved(written, self._path(session))
            rules = self.pool.authorizer.rules_now()
            self.pool.authorizer.check(self.user, fragment, session)
            planned = self.pool.point_reads.planned(session, fragment)
        if planned.plan is not None:
            self._reads[written.sql] = AllowedRead(written.sql, planned, rules)
            while len(self._reads) > READS_MAX:
                self._reads.popitem(last=False)

    def point_row(self, read: AllowedRead, params: Sequence[Any], *, in_loop: bool) -> PointRow | None:
        """The row that a statement reads; None if it must run as any other, because something has changed.

        In the event loop no file is read: NotOpenError if one would have to be.
        """
        if (
            self.in_transaction
            or self.search_path != (PUBLIC,)
            or (self.time_zone != UTC and any("TIME ZONE" in kind for kind in read.planned.plan_types))
            or (self._written is not None and self.read_your_writes)
        ):
            return None
        if self.pool.authorizer.rules_now() is not read.rules:
            self._reads.pop(read.text, None)
            return None
        started = time.perf_counter()
        with self.pool.traced(self, "SELECT", read.text) as facts:
            found = self.pool.point_reads.read(read.planned, params, in_loop=in_loop)
            if found is not None:
                facts["millpond.epoch"] = found.epoch
        if found is None:
            self._reads.pop(read.text, None)
            return None
        seconds = time.perf_counter() - started
        self.pool.audit.ran(self.who, "SELECT", read.text, None, seconds)
        self.pool.activity.ran(self.protocol, "SELECT", "ok", seconds)
        return found

    # -- the end ------------------------------------------------------------------------

    def cancel(self, reason: str = CANCELLED) -> None:
        """Cancel the statement that runs, if one does; may be called from any thread."""
        running = self._cancellation
        if running is not None:
            running.cancel(reason)

    def close(self) -> None:
        """Cancel what runs, and roll back the transaction that is open."""
        self.cancel()
        session, self._held = self._held, None
        if session is not None:
            if session.in_transaction:
                session.rollback()
            self.pool.give_back(session)

    async def cancellable(self, work: Awaitable[T], stop: Callable[[str], None]) -> T:
        """Wait for something that `stop` ends, so that `cancel` and the statement timeout end it, too."""
        cancellation = self._cancellation = Cancellation()
        loop = asyncio.get_running_loop()

        def ended() -> None:
            stop(cancellation.reason or CANCELLED)

        timer = None
        if limit_ms := self.statement_limit_ms():
            timer = loop.call_later(limit_ms / 1000, cancellation.cancel, TIMED_OUT)
        try:
            with cancellation.calling(ended):
                return await work
        finally:
            self._cancellation = None
            if timer is not None:
                timer.cancel()

    def _path(self, session: SqlSession) -> tuple[str, ...]:
        """Where names without a schema are looked up: a SET of the same request or transaction goes first."""
        own = session.variables.search_path
        return self.search_path if own == (PUBLIC,) else own

    def with_session(self, work: Callable[[SqlSession], T]) -> T:
        """Do some work with the session of this client's statements, in this thread."""
        with self._session(None) as session:
            return work(session)

    def change(self, text: str, work: Callable[[SqlSession], Result]) -> Result:
        """Make a change that is no statement of SQL itself, such as COPY."""
        with self._session(None) as session:
            (written,) = statements(text, "postgres")
            fragment = session.resolved(written, self._path(session))
            return self._checked(session, fragment, lambda: self._written_by(session, "COPY", work))

    @contextlib.contextmanager
    def _session(self, on_notice: OnNotice | None) -> Iterator[SqlSession]:
        """The session of the transaction, or one for this statement; kept if a transaction begins."""
        session = self.pool.lend() if self._held is None else self._held
        if on_notice is not None:
            session.on_progress = lambda progress: on_notice(_progress_text(progress))
        if session.time_zone != self.time_zone:
            session.set_variables(replace(session.variables, time_zone=self.time_zone))
        try:
            yield session
        finally:
            session.on_progress = None
            self._held = session if session.in_transaction else None
            if self._held is None:
                self.pool.give_back(session)

    def resolved(self, fragment: SqlFragment) -> SqlFragment:
        """The statement with stored names, as the search path of this client resolves them."""
        with self._session(None) as session:
            return session.resolved(fragment, self._path(session))

    def _one(
        self, session: SqlSession, written: SqlFragment, params: Params, limits: Mapping[str, Any] | None
    ) -> Result:
        fragment = session.resolved(written, self._path(session))

        def run(session: SqlSession) -> Result:
            wanted = self.read_limits({**self.limits, **(limits or {})})
            return session.run(fragment.sql, params, fragment.dialect, wanted or None)

        return self._checked(session, fragment, lambda: self._written_by(session, fragment.word(0), run))

    def _checked(self, session: SqlSession, fragment: SqlFragment, work: Callable[[], Result]) -> Result:
        failed: Exception | None = None
        if "audit" in fragment.sql.lower():
            self.pool.audit.flush()  # so that a query of it sees what was done before
        verb, started = verb_of(fragment.sql), time.perf_counter()
        try:
            with self.pool.traced(self, verb, fragment.sql) as facts:
                self.pool.authorizer.check(self.user, fragment, session)
                self._user_limits = self.pool.authorizer.limits(self.user)
                result = work()
                facts["millpond.epoch"] = result.epoch
                return result
        except Exception as error:
            failed = error
            raise
        finally:
            seconds = time.perf_counter() - started
            self.pool.audit.ran(self.who, verb, fragment.sql, failed, seconds)
            self.pool.activity.ran(self.protocol, verb, outcome_of(failed), seconds)

    def _written_by(self, session: SqlSession, verb: str, work: Callable[[SqlSession], Result]) -> Result:
        """Run a statement, and remember what it wrote; a change is over when it was executed."""
        if verb in READS:
            if not session.in_transaction:
                self.wait_for_writes(session)
            return work(session)
        if verb in PURE:
            return work(session)
        if verb in ("BEGIN", "START"):
            self.wait_for_writes(session)
        self.pool.pipeline.ensure()
        before = session.host.last_written
        try:
            result = work(session)
        finally:
            if session.host.last_written != before:
                self._written = session.host.last_written
        self.pool.pipeline.ensure()  # the first definition has made the pond
        _ = result.rowcount
        return result

    def wait_for_writes(self, session: SqlSession) -> int | None:
        """Return when the newest epoch has all that this client wrote: the epoch of the last change."""
        if self._written is None or not self.read_your_writes:
            return None
        self.pool.pipeline.ensure()
        session.host.wait_executed(self._written)
        entry, self._written = self._written, None
        return session.host.epoch_of(entry)


def _least(asked: int, limit: int | None) -> int:
    """The smaller of two limits; 0 and None are none.

    >>> _least(0, 5), _least(3, 5), _least(7, None)
    (5, 3, 7)
    """
    return min(asked or limit, limit) if limit else asked


def fragments_of(text: str, dialect: str) -> list[SqlFragment]:
    """Split a client's text into statements; a text so long that other clients would wait is refused."""
    if len(text) > TEXT_MAX:
        raise InvalidError(
            f"the text of a statement has at most {TEXT_MAX:,} characters",
            detail=f"this one has {len(text):,}",
            hint="pass large values as parameters, and many rows by COPY",
        )
    return statements(text, dialect)


def _fragments(text: str | SqlFragment, dialect: str) -> list[SqlFragment]:
    return [text] if isinstance(text, SqlFragment) else fragments_of(text, dialect)


def _progress_text(progress: Any) -> str:
    steps = ", ".join(progress.steps)
    return f"backfilling {steps}: {progress.rows} of about {progress.total} rows"
