"""The main program of a process: serves the connections that the main process of the server hands to it.

Law: it ends when the main process does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from millpond.errors import UnavailableError
from millpond.pond import Pond
from millpond.pond.other_processes import PondOpening, release
from millpond.server.client_session import ClientSession
from millpond.server.connection_limits import TooManyConnectionsError
from millpond.server.make_serving import make_serving
from millpond.server.pg_catalog.catalog_queries import Backend
from millpond.server.pgwire.pg_connections import PgConnections, backend_fields, backend_of
from millpond.server.pipeline_starter import ASK_AGAIN_S
from millpond.server.processes.channel import LINE_BYTES_MAX, Channel, Handler
from millpond.server.processes.handed_sockets import received
from millpond.server.serving import Serving
from millpond.server.settings import ServeSettings
from millpond.server.thread_switching import quick_switching
from millpond.state.access_rules import CONNECTIONS

log = logging.getLogger("millpond.server")
ASK_S = 5.0


class MainProcess:
    """What a serving process asks of the main one: the pipeline, places, the connections of the others."""

    def __init__(self, channel: Channel, pond: Pond) -> None:
        self._channel = channel
        self._pond = pond
        self._has_epochs = False
        self._runs_until = 0.0

    # -- the pipeline -------------------------------------------------------------------

    def ensure(self) -> None:
        """Return when the main process, or another one, runs the pond; called in a thread."""
        if not self._has_epochs:
            if self._pond.status.epoch is None:
                return  # the first definition makes the pond here
            release(self._pond)
            self._has_epochs = True
        if time.monotonic() >= self._runs_until:
            self._channel.call_from_thread("ensure_pipeline")
            self._runs_until = time.monotonic() + ASK_AGAIN_S
        else:
            self._channel.tell_from_thread("wake")

    def stop(self) -> None:
        """The main process stops its pipeline itself."""

    # -- the connections of other processes -----------------------------------------------

    def cancel(self, pid: int, secret: bytes) -> None:
        self._channel.tell("cancel", pid, secret.hex())

    def cancel_backend(self, pid: int) -> bool:
        return bool(self._channel.call_from_thread("cancel_backend", pid, timeout_s=ASK_S))

    def terminate_backend(self, pid: int) -> bool:
        return bool(self._channel.call_from_thread("terminate_backend", pid, timeout_s=ASK_S))

    def backends(self) -> list[Backend]:
        answered = self._channel.call_from_thread("backends", timeout_s=ASK_S)
        return [backend_of(fields) for fields in answered]

    @contextlib.asynccontextmanager
    async def place(self, client: ClientSession) -> AsyncIterator[None]:
        limit = client.user_limits.get(CONNECTIONS)
        refused = await self._channel.call("take_place", client.backend_pid, client.user.name, limit)
        if refused is not None:
            fields = json.loads(refused)
            raise TooManyConnectionsError(fields["message"], detail=fields["detail"], hint=fields["hint"])
        yield  # the main process takes it back when it hears that the connection has ended


class SentToMainProcess(logging.Handler):
    """The main process logs what a process has to say."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.tell_from_thread("log", record.name, record.levelno, self.format(record))


class ServingProcess:
    def __init__(self, control: socket.socket, sockets: socket.socket) -> None:
        self._control = control
        self._sockets = sockets
        self._channel: Channel
        self._pond: Pond | None = None
        self._serving: Serving | None = None
        self._connections: PgConnections | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def run(self) -> None:
        """Serve until the main process has ended, or asks this one to end."""
        reader, writer = await asyncio.open_connection(sock=self._control, limit=LINE_BYTES_MAX)
        handlers: dict[str, Handler] = {
            "serve": self._serve,
            "samples": self._samples,
            "cancel": self._cancel,
            "cancel_backend": self._cancel_backend,
            "terminate_backend": self._terminate_backend,
            "backends": self._backends,
            "stop": self._stop,
        }
        self._channel = Channel(reader, writer, handlers)
        try:
            with quick_switching():
                await self._channel.run()
        finally:
            await self._stop()

    async def _serve(self, config: Mapping[str, Any]) -> None:
        sys.path[:] = config["path"]
        logging.basicConfig(
            format="%(message)s", level=config["log_level"], handlers=[SentToMainProcess(self._channel)]
        )
        settings = ServeSettings(**{**config["settings"], "admins": tuple(config["settings"]["admins"])})
        pond = self._pond = await asyncio.to_thread(PondOpening(**config["opening"]).open)
        main = MainProcess(self._channel, pond)
        serving = self._serving = await asyncio.to_thread(make_serving, pond, settings, pipeline=main)
        self._connections = PgConnections(serving, main)
        asyncio.get_running_loop().add_reader(self._sockets, self._handed)

    def _handed(self) -> None:
        """The main process has handed over connections."""
        loop = asyncio.get_running_loop()
        try:
            for handed in received(self._sockets):
                task = loop.create_task(self._connect(handed.client, handed.pid, handed.has_place))
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)
        except (EOFError, OSError):
            loop.remove_reader(self._sockets)

    async def _connect(self, client: socket.socket, pid: int, has_place: bool) -> None:
        connections = self._connections
        assert connections is not None
        client.setblocking(False)

        def closed() -> None:
            self._channel.tell("closed", pid)

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connections.transport(pid, lambda: has_place, closed), client
            )
        except OSError as error:  # the client has gone meanwhile
            log.debug("a connection has ended before it began: %s", error)
            client.close()
            closed()

    # -- what the main process asks -----------------------------------------------------

    async def _samples(self) -> dict[str, Any]:
        assert self._serving is not None
        return self._serving.statements.activity.samples().to_json()

    async def _cancel(self, pid: int, secret: str) -> None:
        assert self._connections is not None
        self._connections.cancel_here(pid, bytes.fromhex(secret))

    async def _cancel_backend(self, pid: int) -> bool:
        assert self._connections is not None
        return self._connections.cancel_backend_here(pid)

    async def _terminate_backend(self, pid: int) -> bool:
        assert self._connections is not None
        return self._connections.terminate_backend_here(pid)

    async def _backends(self) -> list[dict[str, Any]]:
        assert self._connections is not None
        return [backend_fields(backend) for backend in self._connections.backends_here()]

    async def _stop(self) -> None:
        """End all statements and connections, and close the pond."""
        if self._stopped:
            return
        self._stopped = True
        with contextlib.suppress(OSError, ValueError):
            asyncio.get_running_loop().remove_reader(self._sockets)
        if self._serving is not None:
            ending = threading.Thread(
                target=self._serving.statements.stop
            )  # they report their end on the loop
            ending.start()
            if self._connections is not None:
                await self._connections.stop()
            await asyncio.to_thread(ending.join)
        if self._pond is not None:
            with contextlib.suppress(UnavailableError):  # the main process reports what the storage does
                await asyncio.to_thread(self._pond.close)


def main() -> None:
    """Run a process: the arguments are the descriptors of the two sockets to the main process."""
    for kind in (signal.SIGINT, signal.SIGTERM):  # the main process decides when a process ends
        signal.signal(kind, signal.SIG_IGN)
    control, sockets = (socket.socket(fileno=int(one)) for one in sys.argv[1:3])
    sockets.setblocking(False)
    asyncio.run(ServingProcess(control, sockets).run())


if __name__ == "__main__":
    main()
