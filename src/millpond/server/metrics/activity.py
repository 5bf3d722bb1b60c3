"""What a server itself does: its connections and the statements of its clients.

Law: counting never fails and never waits for I/O; it is called for every statement of every protocol.  Only
reading the counts asks other processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millpond.errors import InternalError, MillpondError
from millpond.server.metrics.samples import Samples

VERBS = frozenset(
    (
        "SELECT",
        "INSERT",
        "UPDATE",
        "DELETE",
        "MERGE",
        "COPY",
        "CREATE",
        "DROP",
        "ALTER",
        "SHOW",
        "SET",
        "EXPLAIN",
        "SUBSCRIBE",
        "FLUSH",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "DECLARE",
        "FETCH",
        "TRUNCATE",
        "GRANT",
        "REVOKE",
        "WITH",
        "VALUES",
        "DESCRIBE",
    )
)


class ServerActivity:
    """Counts connections and statements; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples = Samples()
        self._others: list[Callable[[], Samples]] = []

    def also_of(self, samples: Callable[[], Samples]) -> None:
        """Add what other processes of the server have counted."""
        self._others.append(samples)

    @contextmanager
    def connected(self, protocol: str) -> Iterator[None]:
        """Count a connection as open while the block runs."""
        self.opened(protocol)
        try:
            yield
        finally:
            self.closed(protocol)

    def opened(self, protocol: str) -> None:
        with self._lock:
            self._samples.add("millpond_connections", 1, protocol)
            self._samples.add("millpond_connections_total", 1, protocol)

    def closed(self, protocol: str) -> None:
        with self._lock:
            self._samples.add("millpond_connections", -1, protocol)

    def ran(self, protocol: str, kind: str, outcome: str, seconds: float) -> None:
        """Count a statement; `outcome` is "ok" or the kind of its error."""
        with self._lock:
            self._samples.add("millpond_queries_total", 1, protocol, kind, outcome)
            self._samples.observe("millpond_query_seconds", seconds, protocol, kind)

    def samples(self) -> Samples:
        with self._lock:
            found = self._samples.copied()
        for samples in self._others:
            found = found.added(samples())
        return found


def verb_of(text: str) -> str:
    """The kind of a statement: its first word, if it is a verb of SQL.

    >>> verb_of(" select 1"), verb_of("-- note\\nFETCH 3"), verb_of("xyzzy"), verb_of("")
    ('SELECT', 'FETCH', 'other', 'other')
    """
    for line in text.splitlines():
        words = line.strip().lstrip("(").split(None, 1)
        if words and not words[0].startswith("--"):
            word = words[0].rstrip(";").upper()
            return word if word in VERBS else "other"
    return "other"


def outcome_of(error: BaseException | None) -> str:
    """
    >>> outcome_of(None), outcome_of(InternalError("x")), outcome_of(KeyError("x"))
    ('ok', 'InternalError', 'InternalError')
    """
    if error is None:
        return "ok"
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == MillpondError.__module__]
    return kinds[0] if kinds else InternalError.__name__
