"""Threads beside the chain, one for each lane: a sink, the compaction, the collection.

Law: what hangs in one lane holds up no other.  Threads are daemons and hold no reference to whoever made the
lanes, so neither the end of the process nor garbage collection waits for one that hangs.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

Call = Callable[[], None]


@dataclass(frozen=True)
class _Lane:
    calls: queue.SimpleQueue[Call | None]
    thread: threading.Thread


class Lanes:
    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._end = weakref.finalize(self, _end_all, self._lanes)
        self._end.atexit = False  # the threads are daemons

    def submit(self, lane: str, call: Call) -> None:
        """Run it in its lane, after what was submitted there before; it must not raise."""
        found = self._lanes.get(lane)
        if found is None:
            calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
            thread = threading.Thread(target=_work, args=(calls,), name=f"millpond-{lane}", daemon=True)
            found = self._lanes[lane] = _Lane(calls, thread)
            thread.start()
        found.calls.put(call)

    def close(self, waits_s: Callable[[str], float | None]) -> list[str]:
        """End the lanes; what has not begun does not begin any more.

        `waits_s` says how long a lane is waited for, None for as long as it takes.  The names of those that
        are still busy.
        """
        now = time.monotonic()
        for lane in self._lanes.values():
            _drop_waiting(lane.calls)
            lane.calls.put(None)
        busy = []
        for name, lane in self._lanes.items():
            wait = waits_s(name)
            if lane.thread is not threading.current_thread():
                lane.thread.join(None if wait is None else max(0.0, now + wait - time.monotonic()))
                if lane.thread.is_alive():
                    busy.append(name)
        self._lanes.clear()
        return busy


def _work(calls: queue.SimpleQueue[Call | None]) -> None:
    while True:
        call = calls.get()
        if call is None:
            return
        call()
        del call


def _drop_waiting(calls: queue.SimpleQueue[Call | None]) -> None:
    while True:
        try:
            calls.get_nowait()
        except queue.Empty:
            return


def _end_all(lanes: dict[str, _Lane]) -> None:
    for lane in lanes.values():
        lane.calls.put(None)
