"""A process as the main process sees it: its process, the channel to it, and its connections."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

from millpond.errors import UnavailableError
from millpond.pond.other_processes import PondOpening
from millpond.server.metrics.samples import Samples
from millpond.server.processes.channel import LINE_BYTES_MAX, Channel, Handler
from millpond.server.settings import ServeSettings

log = logging.getLogger("millpond.server")
START_S = 120.0
STOP_S = 10.0  # how long a process may take to end its statements
_numbers = itertools.count(1)


class Places:
    """The places of users that the connections of a process have taken."""

    def __init__(self) -> None:
        self._taken: dict[int, AbstractContextManager[None]] = {}

    def take(self, pid: int, place: AbstractContextManager[None]) -> None:
        place.__enter__()
        self._taken[pid] = place

    def give_back(self, pid: int) -> None:
        place = self._taken.pop(pid, None)
        if place is not None:
            place.__exit__(None, None, None)

    def close(self) -> None:
        for pid in list(self._taken):
            self.give_back(pid)


class StartedProcess:
    def __init__(self, process: subprocess.Popen[bytes], sockets: socket.socket) -> None:
        self.number = next(_numbers)
        self.process = process
        self.sockets = sockets  # accepts the connections of clients
        self.pids: set[int] = set()  # of its connections
        self.places = Places()
        self.samples = Samples()  # what it last said
        self.channel: Channel
        self._running: asyncio.Task[None]

    @classmethod
    async def start(
        cls, config: Mapping[str, Any], handlers: Callable[[StartedProcess], Mapping[str, Handler]]
    ) -> StartedProcess:
        """Start a process; returns when it is ready to serve."""
        control, theirs = socket.socketpair()
        sockets, their_sockets = socket.socketpair()
        with theirs, their_sockets:
            ends = (theirs.fileno(), their_sockets.fileno())
            process = subprocess.Popen(
                [sys.executable, "-m", "millpond.server.processes.serving_process", *map(str, ends)],
                pass_fds=ends,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        sockets.setblocking(False)
        started = cls(process, sockets)
        reader, writer = await asyncio.open_connection(sock=control, limit=LINE_BYTES_MAX)
        started.channel = Channel(reader, writer, handlers(started))
        started._running = asyncio.create_task(started.channel.run())
        try:
            await started.channel.call("serve", config)
        except UnavailableError as error:
            code = await started.ended()
            raise UnavailableError(
                "a process of the server has ended while it started", detail=f"its exit code is {code}"
            ) from error
        except BaseException:
            started.process.kill()
            await started.ended()
            raise
        return started

    async def ended(self) -> int:
        """Wait until the process has ended: its exit code."""
        await asyncio.wait([self._running])
        self.sockets.close()
        try:
            return await asyncio.to_thread(self.process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return await asyncio.to_thread(self.process.wait)

    async def stop(self) -> None:
        """End its statements and connections, and then the process."""
        with contextlib.suppress(UnavailableError):
            try:
                async with asyncio.timeout(STOP_S):
                    await self.channel.call("stop")
            except TimeoutError:
                log.error("a process of the server does not end, and is killed")
                self.process.kill()
        self.channel.close()
        await self.ended()


def process_config(opening: PondOpening, settings: ServeSettings) -> dict[str, Any]:
    """What a process is told, as JSON."""
    paths = {name: _path(getattr(settings, name)) for name in ("users", "tls_cert", "tls_key")}
    return {
        "opening": asdict(opening),
        "settings": {**asdict(settings), **paths, "admins": list(settings.admins)},
        "path": sys.path,
        "log_level": logging.getLogger("millpond").getEffectiveLevel(),
    }


def _path(given: Any) -> str | None:
    return None if given is None else str(given)
