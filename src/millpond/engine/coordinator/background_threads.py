"""Background threads, one for each lane: a sink, compaction, garbage collection.

Law: a lane that hangs delays no other.  Threads are daemons and have no reference to the owner of the lanes,
so neither the end of the process nor Python's garbage collection waits for one that hangs.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

Call = Callable[[], Any]
_Calls = queue.SimpleQueue["Call | None"]


class DaemonExecutor(Executor):
    """One daemon thread: unlike with concurrent.futures, the end of the process does not wait for it."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "") -> None:
        assert max_workers == 1
        self._calls: _Calls = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_work, args=(self._calls,), name=thread_name_prefix or None, daemon=True
        )
        self._thread.start()
        weakref.finalize(self, self._calls.put, None).atexit = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call after those submitted before; it must not raise.  The future is never resolved."""
        self._calls.put(lambda: fn(*args, **kwargs))
        return Future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            _drop_waiting(self._calls)
        self._calls.put(None)
        if wait:
            self.ended(None)

    def ended(self, wait_s: float | None) -> bool:
        """Wait for the thread, at most this long; returns whether it ended."""
        if self._thread is threading.current_thread():
            return True
        self._thread.join(wait_s)
        return not self._thread.is_alive()


class Lanes:
    def __init__(self, make: Callable[..., Executor] = DaemonExecutor) -> None:
        self._make = make
        self._lanes: dict[str, Executor] = {}

    def submit(self, lane: str, call: Call) -> None:
        """Run a call in its lane, after those submitted there before; it must not raise."""
        if lane not in self._lanes:
            self._lanes[lane] = self._make(1, thread_name_prefix=f"millpond-{lane}")
        self._lanes[lane].submit(call)

    def close(self, waits_s: Callable[[str], float | None]) -> list[str]:
        """End the lanes; calls that have not begun are dropped.

        `waits_s` returns how long to wait for a lane, None for no limit.  Returns the names of lanes that are
        still busy.
        """
        now = time.monotonic()
        for lane in self._lanes.values():
            lane.shutdown(wait=False, cancel_futures=True)
        busy = []
        for name, lane in self._lanes.items():
            wait = waits_s(name)
            left = None if wait is None else max(0.0, now + wait - time.monotonic())
            if isinstance(lane, DaemonExecutor) and not lane.ended(left):
                busy.append(name)
        self._lanes.clear()
        return busy


def _work(calls: _Calls) -> None:
    while True:
        call = calls.get()
        if call is None:
            return
        call()
        del call


def _drop_waiting(calls: _Calls) -> None:
    while True:
        try:
            calls.get_nowait()
        except queue.Empty:
            return
