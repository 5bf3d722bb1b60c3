"""The connections of PostgreSQL clients to one process, and how they reach those to other processes.

Law: a wrong secret cancels nothing, and a connection is found by its number in whichever process it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hmac
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any, Protocol

from millpond.server.client_session import ClientSession
from millpond.server.pg_catalog.catalog_queries import Backend, CatalogQueries
from millpond.server.pgwire import messages as m
from millpond.server.pgwire.error_reports import TERMINATED
from millpond.server.pgwire.pg_connection import HasPlace, PgConnection
from millpond.server.pgwire.shape_cache import ShapeCache
from millpond.server.pgwire.transport import PgTransport
from millpond.server.serving import Serving
from millpond.server.statements import STOPPED

STOP_S = 5.0  # how long a connection may take to end when the server stops


class OtherProcesses(Protocol):
    """The connections of this server to other processes."""

    def cancel(self, pid: int, secret: bytes) -> None:
        """Pass on a request to cancel; called on the event loop."""

    def cancel_backend(self, pid: int) -> bool:
        """pg_cancel_backend in the process that has the connection; called in a thread."""

    def terminate_backend(self, pid: int) -> bool:
        """pg_terminate_backend in the process that has the connection; called in a thread."""

    def backends(self) -> list[Backend]:
        """The connections of all other processes; called in a thread."""

    def place(self, client: ClientSession) -> contextlib.AbstractAsyncContextManager[None]:
        """Take one of the connections that a user may have, in all processes together."""


class NoOtherProcesses:
    """One process serves all connections."""

    def cancel(self, pid: int, secret: bytes) -> None:
        return None

    def cancel_backend(self, pid: int) -> bool:
        return False

    def terminate_backend(self, pid: int) -> bool:
        return False

    def backends(self) -> list[Backend]:
        return []

    @contextlib.asynccontextmanager
    async def place(self, client: ClientSession) -> AsyncIterator[None]:
        with client.place():
            yield


class PgConnections:
    """The connections of this process, by number."""

    def __init__(self, serving: Serving, others: OtherProcesses | None = None) -> None:
        self.serving = serving
        self.catalog = CatalogQueries(serving.pond, serving.settings.name, self)
        self.shapes = ShapeCache()
        self._others: OtherProcesses = others or NoOtherProcesses()
        self._connections: dict[int, PgConnection] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._connections)

    def transport(
        self, pid: int, has_place: HasPlace, closed: Callable[[], None] | None = None
    ) -> PgTransport:
        """The protocol of a new connection; `closed` is called when it has ended."""

        def connected(transport: PgTransport) -> None:
            connection = PgConnection(self, transport, pid, has_place)
            connection.task = self._loop.create_task(self._run(connection, closed))

        return PgTransport(connected)

    async def _run(self, connection: PgConnection, closed: Callable[[], None] | None) -> None:
        self._connections[connection.pid] = connection
        try:
            with self.serving.statements.activity.connected("pg"):
                await connection.run()
        finally:
            del self._connections[connection.pid]
            if closed is not None:
                closed()

    def place(self, client: ClientSession) -> contextlib.AbstractAsyncContextManager[None]:
        """Take one of the connections that a user may have."""
        return self._others.place(client)

    # -- by number ----------------------------------------------------------------------

    def cancel(self, message: m.CancelRequest) -> None:
        """Cancel the statement of a connection, here or in another process; a wrong secret is ignored."""
        if message.pid in self._connections:
            self.cancel_here(message.pid, message.secret)
        else:
            self._others.cancel(message.pid, message.secret)

    def cancel_here(self, pid: int, secret: bytes) -> None:
        connection = self._connections.get(pid)
        if connection is not None and hmac.compare_digest(connection.secret, secret):
            self.cancel_backend_here(pid)

    def cancel_backend(self, pid: int) -> bool:
        """pg_cancel_backend: whether there was such a connection; called in a thread."""
        return self.cancel_backend_here(pid) or self._others.cancel_backend(pid)

    def cancel_backend_here(self, pid: int) -> bool:
        connection = self._connections.get(pid)
        if connection is None or connection.runner is None:
            return False
        connection.runner.client.cancel()
        return True

    def terminate_backend(self, pid: int) -> bool:
        """pg_terminate_backend: whether there was such a connection; called in a thread."""
        return self.terminate_backend_here(pid) or self._others.terminate_backend(pid)

    def terminate_backend_here(self, pid: int) -> bool:
        connection = self._connections.get(pid)
        if connection is None or connection.runner is None:
            return False
        self._loop.call_soon_threadsafe(connection.end, TERMINATED)
        return True

    def backends(self) -> list[Backend]:
        """The connections that have logged in, in all processes; called in a thread."""
        return sorted([*self.backends_here(), *self._others.backends()], key=lambda backend: backend.pid)

    def backends_here(self) -> list[Backend]:
        return [
            Backend(
                pid,
                c.runner.client.user.name,
                c.runner.settings.get("application_name") or "",
                c.state,
                c.transport.address,
                c.began,
                c.runner.said,
            )
            for pid, c in list(self._connections.items())
            if c.runner is not None
        ]

    async def stop(self) -> None:
        """End all connections: a statement that runs ends with an error that says why."""
        tasks = []
        for connection in list(self._connections.values()):
            connection.end(STOPPED)
            if connection.task is not None:
                tasks.append(connection.task)
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=STOP_S)
            for connection in list(self._connections.values()):
                connection.transport.abort()
            for task in left:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


def backend_fields(backend: Backend) -> dict[str, Any]:
    """A connection as JSON, for another process of the server."""
    return {**asdict(backend), "began": backend.began.isoformat()}


def backend_of(fields: dict[str, Any]) -> Backend:
    """
    >>> now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    >>> backend = Backend(7, "ann", "psql", "idle", "127.0.0.1", now, "SELECT 1")
    >>> backend_of(backend_fields(backend)) == backend
    True
    """
    return Backend(**{**fields, "began": datetime.datetime.fromisoformat(fields["began"])})
