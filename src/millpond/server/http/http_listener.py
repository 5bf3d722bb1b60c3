"""Listens for HTTP, with uvicorn on the event loop of the server.

Law: a connection that sends no request in time is closed, as is one that does not read its response; a server
that stops ends event streams.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from millpond.server.http.app import make_app
from millpond.server.serving import Serving

STOP_S = 5  # for responses that are being sent
KEEP_ALIVE_S = 30
STALL_S_MAX = 60.0  # that a client may leave a response unread


class HttpListener:
    def __init__(self, serving: Serving, port: int) -> None:
        self._serving = serving
        self._port = port
        self._app = make_app(serving)
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> str:
        settings = self._serving.settings
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((settings.host, self._port))
            listening.listen(1024)
        except BaseException:
            listening.close()
            raise
        listening.setblocking(False)
        config = uvicorn.Config(
            self._app,
            http=self._protocol(),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=settings.connections_max,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_S,
        )
        config.load()
        config.ssl = self._serving.tls
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._app.state.epoch_watch.begin()
        await self._server.startup([listening])
        self._task = asyncio.create_task(self._server.main_loop())
        host = f"[{settings.host}]" if family == socket.AF_INET6 else settings.host
        scheme = "http" if self._serving.tls is None else "https"
        return f"{scheme}://{host}:{listening.getsockname()[1]}"

    async def stop(self) -> None:
        server = self._server
        if server is None or self._task is None:
            return
        await self._app.state.epoch_watch.stop()  # this ends event streams
        server.should_exit = True
        await self._task
        await server.shutdown()

    def _protocol(self) -> type[asyncio.Protocol]:
        activity, patience_s = self._serving.statements.activity, self._serving.settings.login_ms_max / 1000

        class CountedConnection(H11Protocol):
            """Counts the connection, and closes it if no request comes or no response is read."""

            _stalled: asyncio.TimerHandle | None = None

            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                activity.opened("http")
                self._impatient = self.loop.call_later(patience_s, self._close_silent)

            def connection_lost(self, exc: Exception | None) -> None:
                self._impatient.cancel()
                self._reads_again()
                activity.closed("http")
                super().connection_lost(exc)

            def pause_writing(self) -> None:
                super().pause_writing()
                self._stalled = self.loop.call_later(STALL_S_MAX, self.transport.abort)

            def resume_writing(self) -> None:
                self._reads_again()
                super().resume_writing()

            def _reads_again(self) -> None:
                if self._stalled is not None:
                    self._stalled.cancel()

            def _close_silent(self) -> None:
                if self.cycle is None:
                    self.transport.close()

        return CountedConnection
