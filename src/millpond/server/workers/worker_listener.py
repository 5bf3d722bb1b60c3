"""Accepts connections of PostgreSQL clients and hands each to the worker that has the fewest.

Law: a worker that ends, however it ends, ends only its own connections; another one takes its place.
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
from millpond.server.serving import Serving
from millpond.server.workers.channel import Handler
from millpond.server.workers.handed_sockets import hand_over
from millpond.server.workers.worker_process import START_S, WorkerProcess, worker_config

log = logging.getLogger("millpond.server")
BACKLOG = 100
ASK_S = 5.0  # how long a worker may take to say what it does
AGAIN_S, AGAIN_S_MAX = 0.1, 30.0  # until a worker is started again, doubled each time that this fails


class WorkerListener:
    def __init__(self, serving: Serving, port: int) -> None:
        self._serving = serving
        self._port = port
        self._config = worker_config(opening_of(serving.pond), serving.settings)
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[WorkerProcess] = []
        self._some_worker = asyncio.Event()
        self._pids = itertools.count(1)
        self._stopping = False
        self._ended = Samples()  # what workers that have ended did

    async def start(self) -> str:
        """Start the workers, then listen."""
        self._sockets = await _listening(self._serving.settings.host, self._port)
        count = self._serving.settings.workers
        for worker in await asyncio.gather(*[self._started() for _ in range(count)]):
            self._tasks.append(asyncio.create_task(self._watched(worker)))
        self._tasks += [asyncio.create_task(self._accept(listening)) for listening in self._sockets]
        self._serving.statements.activity.also_of(self._samples)
        return pg_url(self._serving, self._sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening; each worker ends its statements and connections, and then itself."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        for listening in self._sockets:
            listening.close()
        await asyncio.gather(*[worker.stop() for worker in self._workers])
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
            await self._some_worker.wait()
            taken = sum(len(worker.pids) for worker in self._workers)
            worker = min(self._workers, key=lambda one: len(one.pids))
            worker.pids.add(pid)
            try:
                has_place = taken < self._serving.settings.connections_max
                await hand_over(worker.sockets, client, pid, has_place)
                return
            except OSError as error:  # it has just ended: give the client to another one
                log.debug("worker %d takes no connection: %s", worker.number, error)
                self._forget(worker)

    # -- workers ------------------------------------------------------------------------

    async def _started(self) -> WorkerProcess:
        worker = await WorkerProcess.start(self._config, self._handlers)
        self._workers.append(worker)
        self._some_worker.set()
        return worker

    async def _watched(self, worker: WorkerProcess) -> None:
        """Keep a worker running: start another one when it ends."""
        wait_s = AGAIN_S
        while True:
            code = await worker.ended()
            self._forget(worker)
            if self._stopping:
                return
            log.error("a worker of the server has ended (exit code %s): its connections are closed", code)
            while True:
                await asyncio.sleep(wait_s)
                try:
                    async with asyncio.timeout(START_S):
                        worker = await self._started()
                except (MillpondError, OSError, TimeoutError) as error:
                    wait_s = min(2 * wait_s, AGAIN_S_MAX)
                    log.error("a worker of the server cannot be started: %s", error)
                else:
                    wait_s = AGAIN_S
                    break

    def _forget(self, worker: WorkerProcess) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            worker.places.close()
            self._ended = self._ended.added(worker.samples.counters())
        if not self._workers:
            self._some_worker.clear()

    def _samples(self) -> Samples:
        """What all workers did; called in a thread."""
        found = self._ended
        for worker in list(self._workers):
            with contextlib.suppress(MillpondError, TimeoutError):  # it has ended, or is busy
                worker.samples = Samples.of_json(worker.channel.call_from_thread("samples", timeout_s=ASK_S))
            found = found.added(worker.samples)
        return found

    # -- what workers ask ---------------------------------------------------------------

    def _handlers(self, worker: WorkerProcess) -> dict[str, Handler]:
        async def log_line(name: str, level: int, text: str) -> None:
            logging.getLogger(name).log(level, "%s", text)

        async def ensure_pipeline() -> None:
            await asyncio.to_thread(self._serving.statements.pipeline.ensure)

        async def wake_pipeline() -> None:
            wake(self._serving.pond)

        async def take_place(pid: int, user: str, limit: int | None) -> str | None:
            try:
                worker.places.take(pid, self._serving.statements.connections.counted(user, limit))
            except TooManyConnectionsError as error:
                return json.dumps(error.fields())
            return None

        async def closed(pid: int) -> None:
            worker.pids.discard(pid)
            worker.places.give_back(pid)

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
            others = [one for one in self._workers if one is not worker]
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

    def _owner(self, pid: int) -> WorkerProcess | None:
        return next((worker for worker in self._workers if pid in worker.pids), None)


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
