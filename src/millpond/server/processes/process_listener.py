"""Accepts connections of PostgreSQL clients and hands each to the process that has the fewest.

Law: a process that ends, however it ends, ends only its own connections; another one takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import socket
from typing import Any

from millpond.errors import MillpondError
from millpond.pond.other_processes import opening_of, wake
from millpond.server.connection_limits import TooManyConnectionsError
from millpond.server.metrics.samples import Samples
from millpond.server.pgwire.pg_listener import pg_url
from millpond.server.processes.channel import Handler
from millpond.server.processes.handed_sockets import hand_over
from millpond.server.processes.started_process import START_S, StartedProcess, process_config
from millpond.server.serving import Serving

log = logging.getLogger("millpond.server")
BACKLOG = 100
ASK_S = 5.0  # how long a process may take to say what it does
AGAIN_S, AGAIN_S_MAX = 0.1, 30.0  # until a process is started again, doubled each time that this fails


class ProcessListener:
    def __init__(self, serving: Serving, port: int) -> None:
        self._serving = serving
        self._port = port
        self._config = process_config(opening_of(serving.pond), serving.settings)
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._processes: list[StartedProcess] = []
        self._some_process = asyncio.Event()
        self._pids = itertools.count(1)
        self._stopping = False
        self._ended = Samples()  # what other processes that have ended did

    async def start(self) -> str:
        """Start the processes, then listen."""
        self._sockets = await _listening(self._serving.settings.host, self._port)
        count = self._serving.settings.processes
        for process in await asyncio.gather(*[self._started() for _ in range(count)]):
            self._tasks.append(asyncio.create_task(self._watched(process)))
        self._tasks += [asyncio.create_task(self._accept(listening)) for listening in self._sockets]
        self._serving.statements.activity.also_of(self._samples)
        return pg_url(self._serving, self._sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening; each process ends its statements and connections, and then itself."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        for listening in self._sockets:
            listening.close()
        await asyncio.gather(*[process.stop() for process in self._processes])
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- connections --------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listening)
            except OSError as error:  # too many open files, for example
                log.error("a connection cannot be accepted: %s", error)
                await asyncio.sleep(1)
                continue
            with client:
                await self._hand_over(client)

    async def _hand_over(self, client: socket.socket) -> None:
        pid = next(self._pids)
        while True:
            await self._some_process.wait()
            taken = sum(len(process.pids) for process in self._processes)
            process = min(self._processes, key=lambda one: len(one.pids))
            process.pids.add(pid)
            try:
                has_place = taken < self._serving.settings.connections_max
                await hand_over(process.sockets, client, pid, has_place)
                return
            except OSError as error:  # it has just ended: give the client to another one
                log.debug("process %d takes no connection: %s", process.number, error)
                self._forget(process)

    # -- processes ----------------------------------------------------------------------

    async def _started(self) -> StartedProcess:
        process = await StartedProcess.start(self._config, self._handlers)
        self._processes.append(process)
        self._some_process.set()
        return process

    async def _watched(self, process: StartedProcess) -> None:
        """Keep a process running: start another one when it ends."""
        wait_s = AGAIN_S
        while True:
            code = await process.ended()
            self._forget(process)
            if self._stopping:
                return
            log.error("a process of the server has ended (exit code %s): its connections are closed", code)
            while True:
                await asyncio.sleep(wait_s)
                try:
                    async with asyncio.timeout(START_S):
                        process = await self._started()
                except (MillpondError, OSError, TimeoutError) as error:
                    wait_s = min(2 * wait_s, AGAIN_S_MAX)
                    log.error("a process of the server cannot be started: %s", error)
                else:
                    wait_s = AGAIN_S
                    break

    def _forget(self, process: StartedProcess) -> None:
        if process in self._processes:
            self._processes.remove(process)
            process.places.close()
            self._ended = self._ended.added(process.samples.counters())
        if not self._processes:
            self._some_process.clear()

    def _samples(self) -> Samples:
        """What all processes did; called in a thread."""
        found = self._ended
        for process in list(self._processes):
            with contextlib.suppress(MillpondError, TimeoutError):  # it has ended, or is busy
                process.samples = Samples.of_json(
                    process.channel.call_from_thread("samples", timeout_s=ASK_S)
                )
            found = found.added(process.samples)
        return found

    # -- what other processes ask ---------------------------------------------------------------

    def _handlers(self, process: StartedProcess) -> dict[str, Handler]:
        async def log_line(name: str, level: int, text: str) -> None:
            logging.getLogger(name).log(level, "%s", text)

        async def ensure_pipeline() -> None:
            await asyncio.to_thread(self._serving.statements.pipeline.ensure)

        async def wake_pipeline() -> None:
            wake(self._serving.pond)

        async def take_place(pid: int, user: str, limit: int | None) -> str | None:
            try:
                process.places.take(pid, self._serving.statements.connections.counted(user, limit))
            except TooManyConnectionsError as error:
                return json.dumps(error.fields())
            return None

        async def closed(pid: int) -> None:
            process.pids.discard(pid)
            process.places.give_back(pid)

        async def cancel(pid: int, secret: str) -> None:
            if (owner := self._owner(pid)) is not None:
                await owner.channel.call("cancel", pid, secret)

        async def cancel_backend(pid: int) -> bool:
            owner = self._owner(pid)
            return owner is not None and bool(await owner.channel.call("cancel_backend", pid))

        async def terminate_backend(pid: int) -> bool:
            owner = self._owner(pid)
            return owner is not None and bool(await owner.channel.call("terminate_backend", pid))

        async def backends() -> list[Any]:
            others = [one for one in self._processes if one is not process]
            asked = await asyncio.gather(
                *[one.channel.call("backends") for one in others], return_exceptions=True
            )
            return [backend for answer in asked if isinstance(answer, list) for backend in answer]

        return {
            "log": log_line,
            "ensure_pipeline": ensure_pipeline,
            "wake": wake_pipeline,
            "take_place": take_place,
            "closed": closed,
            "cancel": cancel,
            "cancel_backend": cancel_backend,
            "terminate_backend": terminate_backend,
            "backends": backends,
        }

    def _owner(self, pid: int) -> StartedProcess | None:
        return next((process for process in self._processes if pid in process.pids), None)


async def _listening(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            made.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            same_port = made[0].getsockname()[1] if port == 0 and len(made) > 1 else port
            listening.bind((address[0], same_port, *address[2:]))
            listening.listen(BACKLOG)
    except BaseException:
        for listening in made:
            listening.close()
        raise
    return made
