"""Counts the connections of each user, and refuses those above its limit.

Law: a user beyond its limit is refused; nobody else is.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

from millpond.errors import UnavailableError


class TooManyConnectionsError(UnavailableError):
    """A user has as many connections as it may have: retry when one has ended."""

    retry_s = 1


class ConnectionLimits:
    """Counts connections of PostgreSQL clients, and requests of others while they run; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    @contextlib.contextmanager
    def counted(self, user: str, limit: int | None) -> Iterator[None]:
        """Count one connection of a user for the block; refused if that is one too many."""
        with self._lock:
            if limit is not None and self._taken[user] >= limit:
                raise TooManyConnectionsError(
                    f"user {user!r} has too many connections", detail=f"at most {limit} at the same time"
                )
            self._taken[user] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[user] -= 1
                if not self._taken[user]:
                    del self._taken[user]
