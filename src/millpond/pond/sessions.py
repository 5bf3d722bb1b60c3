"""The SQL sessions of a pond: the one of `pond.sql`, further ones, and those of transactions.

SQL is loaded when the first session is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from millpond.pond.inbox_client import InboxClient

if TYPE_CHECKING:
    from millpond.pond.api import Pond
    from millpond.pond.transaction import Transaction
    from millpond.sql.session import SqlSession


class Sessions:
    """Makes sessions over a pond, and closes those it keeps."""

    def __init__(self, pond: Pond, inbox: InboxClient) -> None:
        self._pond = pond
        self._inbox = inbox
        self._default: SqlSession | None = None
        self._idle: list[SqlSession] = []  # of transactions that have ended

    @property
    def default(self) -> SqlSession:
        """The session in which `pond.sql` runs its statements."""
        if self._default is None:
            self._default = self.new()
        return self._default

    def new(self) -> SqlSession:
        """Another session; the caller closes it."""
        from millpond.pond.sql_host import new_session

        return new_session(self._pond, self._inbox)

    @contextlib.contextmanager
    def transaction(self, *, read_only: bool) -> Iterator[Transaction]:
        """A transaction in a session of its own; it is rolled back if the block does not commit it."""
        from millpond.pond.transaction import Transaction

        self._inbox.execution.require_open()
        try:
            session = self._idle.pop()
        except IndexError:
            session = self.new()
        try:
            with Transaction(session, read_only=read_only) as block:
                yield block
        finally:
            if session.in_transaction:
                session.rollback()
            self._idle.append(session)

    def close(self) -> None:
        for session in (self._default, *self._idle):
            if session is not None:
                session.close()
