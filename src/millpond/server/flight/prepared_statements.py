"""Prepared statements of Flight SQL: a text, its parameters, and a handle that only its user can use.

Law: handles are bounded: the one that was used longest ago is forgotten, and its client is told so.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.server.authentication import ServedUser
from millpond.sql.text.parameters import marks
from millpond.sql.text.parse import statements

PREPARED_MAX = 10_000


@dataclass
class PreparedText:
    """A statement that a client keeps; `rows` are the values of its parameters, one row for each run."""

    text: str
    user: ServedUser
    rows: list[list[Any]] = field(default_factory=list)
    result: Any = None  # of a statement that ran when its description was asked for
    schema: pa.Schema | None = None  # of a query that was described

    def runs(self) -> Iterator[list[Any] | None]:
        """The parameters of each run."""
        yield from self.rows if self.rows else [None]


class PreparedTexts:
    """The prepared statements of a server, by handle; thread-safe."""

    def __init__(self, most: int = PREPARED_MAX) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[bytes, PreparedText] = {}

    def add(self, prepared: PreparedText) -> bytes:
        handle = secrets.token_bytes(16)
        with self._lock:
            if len(self._known) >= self._most:
                self._known.pop(next(iter(self._known)))
            self._known[handle] = prepared
        return handle

    def get(self, handle: bytes, user: ServedUser) -> PreparedText:
        with self._lock:
            found = self._known.pop(handle, None)
            if found is not None:
                self._known[handle] = found  # the last used is last
        if found is None or found.user.name != user.name:
            raise InvalidError("no such prepared statement", hint="prepare it again")
        return found

    def close(self, handle: bytes, user: ServedUser) -> None:
        with self._lock:
            found = self._known.get(handle)
            if found is not None and found.user.name == user.name:
                del self._known[handle]


def parameter_schema(text: str) -> pa.Schema:
    """A column for each parameter of a text; a text value is converted where the statement needs it.

    >>> parameter_schema("SELECT * FROM t WHERE a = $1 AND b = $2 OR a = $1").names
    ['1', '2']
    """
    found: dict[int | str, None] = {}
    for fragment in statements(text, "postgres"):
        found.update(dict.fromkeys(which for _, _, which in marks(fragment.tokens, None)))
    numbered = [which for which in found if isinstance(which, int)]
    names = [str(n) for n in range(1, max(numbered, default=0) + 1)]
    names += [which for which in found if isinstance(which, str)]
    return pa.schema([pa.field(name, pa.string()) for name in names])


def bound_rows(batches: pa.Table) -> list[list[Any]]:
    """The values of parameters, in the order of their columns."""
    columns = [column.to_pylist() for column in batches.columns]
    return [list(row) for row in zip(*columns, strict=True)]
