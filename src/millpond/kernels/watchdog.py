"""Limits how long one call of user code may take.

A thread checks now and then whether the same call is still running.  If a call
takes too long, the thread raises `TooLong` in the thread that runs it, which
reports the step and the key.  A call that hangs inside a C library cannot be
interrupted; it is logged.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from millpond.kernels.user_code import TooLong

log = logging.getLogger(__name__)


class Counts(Protocol):
    @property
    def calls(self) -> int: ...  # grows with every call of user code


@contextmanager
def limited(counts: Counts, limit_us: int | None, what: str) -> Iterator[None]:
    """Raise TooLong in this thread when `counts.calls` does not change for longer than the limit."""
    if limit_us is None:
        yield
        return
    limit_s = limit_us / 1e6
    done = threading.Event()
    lock = threading.Lock()  # held while raising, so that nothing is raised after the calls have ended
    thread = threading.get_ident()

    def watch() -> None:
        seen, since = counts.calls, time.monotonic()
        while not done.wait(min(limit_s / 4, 1.0)):
            if counts.calls != seen:
                seen, since = counts.calls, time.monotonic()
            elif time.monotonic() - since > limit_s:
                log.warning("%s has not come back for %s s", what, limit_s)
                with lock:
                    if not done.is_set():
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(
                            ctypes.c_ulong(thread), ctypes.py_object(TooLong)
                        )
                since = time.monotonic()  # raise again later if user code caught it

    watcher = threading.Thread(target=watch, name="millpond-watchdog", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with lock:
            done.set()
