"""Accepts connections of PostgreSQL clients in this process."""

from __future__ import annotations

import asyncio
import itertools

from millpond.server.pgwire.pg_connections import PgConnections
from millpond.server.pgwire.transport import PgTransport
from millpond.server.serving import Serving


class PgListener:
    def __init__(self, serving: Serving, port: int) -> None:
        self._serving = serving
        self._port = port
        self._server: asyncio.Server | None = None
        self._pids = itertools.count(1)
        self._connections: PgConnections | None = None

    async def start(self) -> str:
        loop = asyncio.get_running_loop()
        settings = self._serving.settings
        connections = self._connections = PgConnections(self._serving)

        def accepted() -> PgTransport:
            return connections.transport(
                next(self._pids), lambda: len(connections) <= settings.connections_max
            )

        self._server = await loop.create_server(accepted, settings.host, self._port)
        return pg_url(self._serving, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._connections is not None:
            await self._connections.stop()


def pg_url(serving: Serving, port: int) -> str:
    """What clients connect to."""
    host = serving.settings.host
    shown = f"[{host}]" if ":" in host else host
    return f"postgresql://{shown}:{port}/{serving.settings.name}"
