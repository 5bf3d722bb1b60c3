"""Tells the event loop when an epoch has been committed, by this process or by another one.

Law: however many clients wait, one task looks for the next manifest, and only while a client waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from millpond.errors import MillpondError
from millpond.pond import Pond
from millpond.state.manifest.manifest import Manifest, manifest_name
from millpond.state.store.location import is_local

LOCAL_POLL_S, REMOTE_POLL_S = 0.01, 0.25  # between two looks at the storage
RESYNC_S = 1.0  # how often the newest epoch is looked up from the beginning


class EpochWatch:
    """Waits for epochs on the event loop of a server."""

    def __init__(self, pond: Pond) -> None:
        self._pond = pond
        self._poll_s = LOCAL_POLL_S if is_local(pond.store.uri) else REMOTE_POLL_S
        self._epoch = -1
        self._waiters: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopped = False

    def begin(self) -> None:
        """Listen to the epochs of this process; called on the loop."""
        self._loop = asyncio.get_running_loop()
        self._pond.on_epoch(self._committed)

    async def after(self, epoch: int, timeout_s: float) -> int:
        """The newest epoch, once it is greater than `epoch` or the time is over."""
        if self._task is None or self._task.done():
            self._epoch = await asyncio.to_thread(_newest, self._pond, self._epoch)
        if self._epoch <= epoch and not self.stopped:
            await self._wait_for_commit(timeout_s)
        return self._epoch

    async def stop(self) -> None:
        """Let everybody go who waits; nobody waits from now on."""
        self.stopped = True
        self._advance(self._epoch)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._loop = None

    async def _wait_for_commit(self, timeout_s: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_for_next())
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)

    async def _look_for_next(self) -> None:
        """Look for the next epoch while anyone waits."""
        resync = time.monotonic() + RESYNC_S
        while self._waiters:
            await asyncio.sleep(self._poll_s)
            lost = time.monotonic() > resync  # the next manifest may have been collected already
            if lost:
                resync = time.monotonic() + RESYNC_S
            found = await asyncio.to_thread(_newest if lost else _next, self._pond, self._epoch)
            if found > self._epoch:
                self._advance(found)

    def _advance(self, epoch: int) -> None:
        self._epoch = max(self._epoch, epoch)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _committed(self, manifest: Manifest) -> None:
        """Called in the thread of the pipeline."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._advance, manifest.epoch)


def _newest(pond: Pond, known: int) -> int:
    try:
        return max(known, pond.status.epoch if pond.status.epoch is not None else -1)
    except MillpondError:
        return known


def _next(pond: Pond, known: int) -> int:
    """The newest epoch that directly follows the known one; looks only at the next name."""
    try:
        while pond.store.size(manifest_name(known + 1)) is not None:
            known += 1
    except MillpondError:
        pass  # the storage is unavailable: look again later
    return known
