"""Cancelling a statement from another thread.

Law: a cancelled statement ends with an error and leaves nothing behind; what it has made durable stays.
A thread runs its statement inside `cancelled_by(cancellation)`.  Whatever waits for a long time there calls
`check_cancelled`, or registers with `on_cancel` a function that ends its waiting.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from millpond.errors import UnavailableError


class StatementCancelledError(UnavailableError):
    """The statement was cancelled: by its client, by a time limit, or because the server stops."""


class Cancellation:
    """Whether one statement is cancelled, and why.

    >>> stop = Cancellation()
    >>> stop.cancel("the statement was cancelled by its user")
    >>> stop.reason
    'the statement was cancelled by its user'
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] = []

    def cancel(self, reason: str) -> None:
        """Cancel the statement; the first reason counts."""
        with self._lock:
            if self.reason is None:
                self.reason = reason
            waiting = list(self._waiting)
        for stop in waiting:
            stop()

    def check(self) -> None:
        """Raise StatementCancelledError if the statement is cancelled."""
        if self.reason is not None:
            raise StatementCancelledError(self.reason)

    @contextlib.contextmanager
    def calling(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` when the statement is cancelled inside the block; now, if it is cancelled already."""
        with self._lock:
            self._waiting.append(stop)
            cancelled = self.reason is not None
        try:
            if cancelled:
                stop()
            yield
        finally:
            with self._lock:
                self._waiting.remove(stop)


_CURRENT: ContextVar[Cancellation | None] = ContextVar("millpond-cancellation", default=None)


@contextlib.contextmanager
def cancelled_by(cancellation: Cancellation | None) -> Iterator[None]:
    """Run a block as part of a statement that `cancellation` can end."""
    token = _CURRENT.set(cancellation)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def check_cancelled() -> None:
    """Raise StatementCancelledError if the statement of this thread is cancelled."""
    current = _CURRENT.get()
    if current is not None:
        current.check()


def on_cancel(stop: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
    """Call `stop` when the statement of this thread is cancelled inside the block."""
    current = _CURRENT.get()
    return contextlib.nullcontext() if current is None else current.calling(stop)
