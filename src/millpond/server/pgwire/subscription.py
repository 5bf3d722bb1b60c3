"""Follows a subscription in a thread of its own, and hands its changes to the event loop.

Law: at most `AHEAD` tables wait for a client that does not read; then the thread waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue

import pyarrow as pa

from millpond.cancellation import Cancellation, StatementCancelledError
from millpond.server.client_session import CANCELLED, ClientSession
from millpond.sql.result import Result

AHEAD = 4
LOOK_S = 0.2  # how often a full queue is tried again


class SubscriptionPump:
    def __init__(self, client: ClientSession, result: Result) -> None:
        self._client = client
        self._result = result
        self._loop = asyncio.get_running_loop()
        self._tables: queue.Queue[pa.Table | None] = queue.Queue(AHEAD)
        self._arrived = asyncio.Event()
        self._cancellation = Cancellation()
        self._failed: BaseException | None = None
        self._task = asyncio.ensure_future(
            client.pool.in_thread(self._follow, self._cancellation, streaming=True)
        )
        self._task.add_done_callback(self._ended)

    def _follow(self) -> None:
        for table in self._result.tables(True):
            if table.num_rows:
                self._hand_over(table)
        self._hand_over(None)

    def _hand_over(self, table: pa.Table | None) -> None:
        while True:
            self._cancellation.check()
            with contextlib.suppress(queue.Full):
                self._tables.put(table, timeout=LOOK_S)
                break
        self._loop.call_soon_threadsafe(self._arrived.set)

    def _ended(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()
        self._arrived.set()

    async def next(self, timeout_s: float | None = None) -> pa.Table | None:
        """The next changes; None at the end, or if none came in time."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._tables.get_nowait()
            if self._failed is not None:
                raise self._failed
            if self._task.done():
                return None
            self._arrived.clear()
            if not self._tables.empty():
                continue
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout_s)
            except TimeoutError:
                return None

    @property
    def is_over(self) -> bool:
        return self._task.done() and self._tables.empty()

    def cancel(self, reason: str = CANCELLED) -> None:
        self._cancellation.cancel(reason)

    async def close(self) -> None:
        self.cancel()
        with contextlib.suppress(StatementCancelledError, asyncio.CancelledError):
            await self._task
