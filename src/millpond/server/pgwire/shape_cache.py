"""Remembers how statements were described, for all connections of a server.

Law: an entry is used only with the program that it was made for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from millpond.server.pgwire.outcome import StatementShape
from millpond.sql.session import SqlSession
from millpond.sql.text.parse import SqlFragment

SHAPES_MAX = 2048
Key = tuple[str | None, str, tuple[int, ...]]


class ShapeCache:
    def __init__(self) -> None:
        self._shapes: OrderedDict[Key, StatementShape] = OrderedDict()
        self._lock = threading.Lock()

    def of(
        self,
        session: SqlSession,
        fragment: SqlFragment,
        declared: tuple[int, ...],
        make: Callable[[SqlSession, SqlFragment, Sequence[int]], StatementShape],
    ) -> StatementShape:
        key = session.host.program()[1], fragment.sql, declared
        with self._lock:
            found = self._shapes.get(key)
            if found is not None:
                self._shapes.move_to_end(key)
                return found
        with session.lock:
            made = make(session, fragment, declared)
        with self._lock:
            self._shapes[key] = made
            while len(self._shapes) > SHAPES_MAX:
                self._shapes.popitem(last=False)
        return made
