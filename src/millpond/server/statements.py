"""Runs the statements of all clients, in a bounded number of threads.

Law: a client never waits for another one's statement longer than the pool is full, and 1,000 idle
clients cost no thread and no database: sessions are lent for one statement.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from millpond.cancellation import Cancellation, StatementCancelledError, cancelled_by
from millpond.pond import Pond
from millpond.server.audit import Audit
from millpond.server.authentication import ServedUser
from millpond.server.authorization import Authorizer
from millpond.server.client_session import ClientSession
from millpond.server.connection_limits import ConnectionLimits
from millpond.server.metrics.activity import ServerActivity
from millpond.server.pipeline_starter import Pipeline, PipelineStarter
from millpond.server.point_reads import PlannedRead, PointReads
from millpond.server.settings import ServeSettings
from millpond.server.telemetry.traces import configured_traces
from millpond.sql.session import SqlSession
from millpond.sql.statements.session_variables import SessionVariables

T = TypeVar("T")
DEFAULTS = SessionVariables()
ENCODERS = 2  # threads that encode large answers
STOPPED = "the server is shutting down"


class StatementPool:
    def __init__(
        self,
        pond: Pond,
        settings: ServeSettings,
        authorizer: Authorizer,
        audit: Audit,
        pipeline: Pipeline | None = None,
    ) -> None:
        self.pond = pond
        self.settings = settings
        self.authorizer = authorizer
        self.audit = audit
        self.connections = ConnectionLimits()
        self.pipeline: Pipeline = pipeline or PipelineStarter(pond)
        self.activity = ServerActivity()
        self.traces = configured_traces()
        self.point_reads = PointReads(pond.store.uri)
        pond.on_epoch(self.point_reads.committed)
        self._opening: dict[str, asyncio.Future[None]] = {}  # tables of point reads, on the event loop
        self._threads = ThreadPoolExecutor(settings.statements_max, "millpond-statement")
        self._streams = ThreadPoolExecutor(settings.connections_max, "millpond-stream")
        self._encoders = ThreadPoolExecutor(ENCODERS, "millpond-encode")
        self._lock = threading.Lock()
        self._idle: list[SqlSession] = []
        self._running: set[Cancellation] = set()
        self._stopped = False

    def client(self, user: ServedUser, protocol: str = "pg", address: str = "") -> ClientSession:
        """A client: its statements run one after the other, and it reads its own writes."""
        return ClientSession(self, user, protocol, address)

    def traced(self, client: ClientSession, verb: str, text: str) -> AbstractContextManager[dict[str, Any]]:
        """A span around a statement, if traces are exported; what is added to the mapping is shown there."""
        if self.traces is None:
            return contextlib.nullcontext({})
        return self.traces.statement(client.protocol, verb, text, client.user.name)

    async def in_thread(
        self, work: Callable[[], T], cancellation: Cancellation, *, streaming: bool = False
    ) -> T:
        """Run blocking work in a thread of the pool; `streaming` work may last and has its own threads."""

        def run() -> T:
            with self._tracked(cancellation), cancelled_by(cancellation):
                cancellation.check()
                return work()

        return await self._submitted(self._streams if streaming else self._threads, run)

    async def encoded(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Make the pieces of a large answer beside the event loop, one ahead of what is sent."""
        coming = self._submitted(self._encoders, lambda: next(pieces, None))
        while (data := await coming) is not None:
            coming = self._submitted(self._encoders, lambda: next(pieces, None))
            yield data

    def _submitted(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
        try:
            return asyncio.get_running_loop().run_in_executor(threads, work)
        except RuntimeError:
            if self._stopped:  # between two statements of a client
                raise StatementCancelledError(STOPPED) from None
            raise

    async def open_table(self, planned: PlannedRead) -> None:
        """Open the table of a point read at the newest epoch: once, for all clients that wait for it."""
        assert planned.plan is not None
        name = planned.plan.spec.name
        opening = self._opening.get(name)
        if opening is None:
            opening = self._submitted(self._threads, lambda: self.point_reads.open(planned))
            self._opening[name] = opening
            opening.add_done_callback(lambda _: self._opening.pop(name, None))
        await asyncio.shield(opening)

    @contextlib.contextmanager
    def _tracked(self, cancellation: Cancellation) -> Iterator[None]:
        with self._lock:
            if self._stopped:
                raise StatementCancelledError(STOPPED)
            self._running.add(cancellation)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(cancellation)

    # -- sessions ---------------------------------------------------------------------

    def lend(self) -> SqlSession:
        """A session for one statement or one transaction; give it back afterwards."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        made = self.pond.new_session()
        made.spools_results = True  # a client may read it slowly, and there may be many
        made.resolves_names = False  # the client does, and what it may do is checked by these names
        return made

    def give_back(self, session: SqlSession) -> None:
        if session.in_transaction:
            session.rollback()  # nobody can end it any more, and the next client must not be part of it
        session.prepared.clear()  # they are of this client
        if session.variables != DEFAULTS:
            session.set_variables(DEFAULTS)  # what SET has changed is of this client, too
        with self._lock:
            keep = not self._stopped and len(self._idle) < self.settings.statements_max
            if keep:
                self._idle.append(session)
        if not keep:
            session.close()

    @contextlib.contextmanager
    def lent(self) -> Iterator[SqlSession]:
        session = self.lend()
        try:
            yield session
        finally:
            session.on_progress = None
            self.give_back(session)

    def stop(self) -> None:
        """Cancel all statements, and wait until they have ended."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for cancellation in running:
            cancellation.cancel(STOPPED)
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._streams.shutdown(wait=True, cancel_futures=True)
        self._encoders.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()
        self.audit.stop()
        self.pipeline.stop()
        if self.traces is not None:
            self.traces.stop()
