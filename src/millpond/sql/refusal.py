"""Refuses SQL that is not supported: the place in the text, and what to do instead.

docs/sql.md lists all of it: `tests/docs/unsupported.py` has an example of every
refusal, runs them, and writes what is said.
"""

from __future__ import annotations

from typing import Any, NoReturn

from millpond.errors import InvalidError
from millpond.kernels.sql_pictures import picture

_SETTINGS = "SET search_path changes the session; other settings are given to millpond.open(…)"
OTHER_VERBS = {  # of other databases: what to do instead
    "REPLACE": "INSERT replaces the row with the same primary key",
    "REFRESH": "a materialized view is always up to date; FLUSH waits for what was sent",
    "VACUUM": "compaction is automatic; pond.compact() runs it now",
    "ANALYZE": "there are no statistics to collect; EXPLAIN ANALYZE view shows the cost of each step",
    "LOCK": "changes are executed one after the other, in the order in which they came",
    "DECLARE": "a result can be iterated; SUBSCRIBE follows a view",
    "LISTEN": "SUBSCRIBE follows a view",
    "NOTIFY": "SUBSCRIBE follows a view",
    "UNLISTEN": "SUBSCRIBE follows a view",
    "CLUSTER": "rows are stored by key, and compaction is automatic",
    "REINDEX": "an index is always up to date",
    "CHECKPOINT": "every epoch is durable; CREATE SAVEPOINT keeps one",
    "DISCARD": "RESET ALL and DEALLOCATE ALL forget what a session has set and prepared",
    "CALL": "CREATE FUNCTION, or pond.function for Python",
    "DO": "CREATE FUNCTION, or pond.function for Python",
    "PRAGMA": _SETTINGS,
    "USE": "open another pond: millpond.open(path)",
    "ATTACH": "open another pond: millpond.open(path)",
    "INSTALL": "what DuckDB has built in is there",
    "LOAD": "what DuckDB has built in is there",
}


class NotSupported(InvalidError):
    """Refused while lowering; `at` is (start, length) in the text, if known."""

    def __init__(self, message: str, *, at: tuple[int, int] | None = None, **rest: Any) -> None:
        super().__init__(message, **rest)
        self.at = at


def pointing(message: str, sql: str, at: tuple[int, int] | None, hint: str | None = None) -> InvalidError:
    """An error that shows a query and a place in it.

    It keeps both: `sql` may be rewritten, and whoever knows what the user wrote shows that instead.
    """
    error = InvalidError(message, detail="in the query\n" + picture(sql, at), hint=hint)
    error.place = (sql, at)
    return error


def refuse(name: str, why: str, at: tuple[int, int] | None = None, hint: str | None = None) -> NoReturn:
    """Refuse what the binder calls `name`."""
    raise NotSupported(f"{name} {why}", at=at, hint=hint or "docs/sql.md lists what is supported")
