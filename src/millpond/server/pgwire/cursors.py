"""Cursors: DECLARE, FETCH, MOVE and CLOSE, over results, over portals and over subscriptions.

A result is held until its cursor is closed, so a cursor over it goes forward and back.

A cursor over a subscription gives the changes since the last FETCH.  FETCH waits until there is one;
`FETCH … WITH (timeout = '1s')` gives up after that time with no rows.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pyarrow as pa

from millpond.server.client_session import ClientSession
from millpond.server.pgwire.error_reports import PgError
from millpond.server.pgwire.outcome import Outcome, PgCursor, PgPortal
from millpond.server.pgwire.session_settings import milliseconds
from millpond.server.pgwire.subscription import SubscriptionPump
from millpond.sql.text.parse import SqlFragment

ALL = 1 << 62
OpenPortal = Callable[[str], Awaitable[PgPortal | None]]


class Cursors:
    def __init__(self, client: ClientSession) -> None:
        self._client = client
        self._cursors: dict[str, PgCursor] = {}
        self.open_portal: OpenPortal | None = None  # gives a portal of the extended protocol, with its rows

    def declare(self, name: str, made: Outcome, *, held: bool, binary: bool, scrolls: bool = True) -> None:
        if name in self._cursors:
            raise PgError("42P03", f'cursor "{name}" already exists')
        if made.columns is None:
            raise PgError("42P11", "a cursor needs a query")
        pump = None if made.stream is None else SubscriptionPump(self._client, made.stream)
        self._cursors[name] = PgCursor(
            made.columns, made.table, pump, held=held or pump is not None, binary=binary, scrolls=scrolls
        )

    def columns_of(self, name: str) -> list[tuple[str, str]] | None:
        """The columns of a cursor, which is a portal, too; None if there is none of that name."""
        found = self._cursors.get(name)
        return None if found is None else found.columns

    def named(self, fragment: SqlFragment) -> PgCursor:
        """The cursor that FETCH or MOVE names."""
        return self._get(_parsed(fragment).name)

    def _get(self, name: str) -> PgCursor:
        found = self._cursors.get(name)
        if found is None:
            raise PgError("34000", f'cursor "{name}" does not exist')
        return found

    async def fetch(self, fragment: SqlFragment) -> Outcome:
        asked, verb = _parsed(fragment), fragment.word(0)
        if asked.name not in self._cursors and self.open_portal is not None:
            portal = await self.open_portal(asked.name)
            if portal is not None and portal.outcome is not None and portal.outcome.table is not None:
                rows, portal.at = moved(portal.outcome.table, portal.at, asked.way, asked.count)
                return _said(verb, rows, portal.outcome.columns)
        cursor = self._get(asked.name)
        if cursor.subscription is not None:
            if asked.way != "FORWARD":
                raise PgError("55000", "cursor can only scan forward", hint="a subscription has no end")
            rows = await self._follow(cursor, asked.count, asked.timeout_ms)
        else:
            assert cursor.table is not None
            if not cursor.scrolls and (asked.way != "FORWARD" or asked.count < 0):
                raise PgError("55000", "cursor can only scan forward", hint="declare it with SCROLL")
            rows, cursor.at = moved(cursor.table, cursor.at, asked.way, asked.count)
        return _said(verb, rows, cursor.columns)

    async def _follow(self, cursor: PgCursor, count: int, timeout_ms: int | None) -> pa.Table:
        pump = cursor.subscription
        if cursor.table is None or cursor.at >= cursor.table.num_rows:
            timeout = None if timeout_ms is None else timeout_ms / 1000
            cursor.table, cursor.at = await self._client.cancellable(pump.next(timeout), pump.cancel), 0
        parts = [] if cursor.table is None else [_next(cursor, count)]
        while count > sum(p.num_rows for p in parts) and cursor.table is not None:
            cursor.table, cursor.at = await pump.next(0), 0
            if cursor.table is not None:
                parts.append(_next(cursor, count - sum(p.num_rows for p in parts)))
        if not parts:
            return pa.table(
                [pa.nulls(0) for _ in cursor.columns], names=[str(n) for n in range(len(cursor.columns))]
            )
        return pa.concat_tables(parts)

    async def close(self, fragment: SqlFragment) -> Outcome:
        name = fragment.tokens[1].text if len(fragment) > 1 else ""
        if fragment.word(1) == "ALL":
            await self.close_all()
            return Outcome("CLOSE CURSOR ALL")
        cursor = self._get(name)
        del self._cursors[name]
        if cursor.subscription is not None:
            await cursor.subscription.close()
        return Outcome("CLOSE CURSOR")

    async def end_transaction(self) -> None:
        """Close the cursors that do not outlive their transaction."""
        for name in [n for n, c in self._cursors.items() if not c.held]:
            del self._cursors[name]

    async def close_all(self) -> None:
        cursors, self._cursors = list(self._cursors.values()), {}
        for cursor in cursors:
            if cursor.subscription is not None:
                await cursor.subscription.close()


def _said(verb: str, rows: pa.Table, columns: list[tuple[str, str]] | None) -> Outcome:
    if verb == "MOVE":
        return Outcome(f"MOVE {rows.num_rows}")
    return Outcome(f"FETCH {rows.num_rows}", columns, rows)


def _next(cursor: PgCursor, count: int) -> pa.Table:
    """The next rows of what a subscription has brought."""
    assert cursor.table is not None
    found = cursor.table.slice(cursor.at, max(0, count))
    cursor.at += found.num_rows
    return found


def moved(table: pa.Table, at: int, way: str, count: int) -> tuple[pa.Table, int]:
    """The rows that FETCH gives, and the new place: 0 is before the first row, n + 1 behind the last one.

    >>> rows = pa.table({"n": [1, 2, 3]})
    >>> [(moved(rows, 3, way, n)[0]["n"].to_pylist(), moved(rows, 3, way, n)[1]) for way, n in
    ...  (("FORWARD", 1), ("FORWARD", -2), ("ABSOLUTE", -1), ("RELATIVE", -1), ("FORWARD", 0))]
    [([], 4), ([2, 1], 1), ([3], 3), ([2], 2), ([3], 3)]
    """
    size = table.num_rows
    if way != "FORWARD" or count == 0:
        to = at + count if way != "ABSOLUTE" else size + 1 + count if count < 0 else count
        to = min(max(to, 0), size + 1)
        return table.slice(to - 1, 1) if 1 <= to <= size else table.slice(0, 0), to
    if count > 0:
        end = at + count
        return table.slice(min(at, size), count), end if end <= size else size + 1
    first = at + count  # the last row that is given, counted from 1
    places = range(at - 1, max(first, 1) - 1, -1)
    return table.take(pa.array([place - 1 for place in places], pa.int64())), max(first, 0)


_FETCH = re.compile(
    r"""(?:FETCH|MOVE)\s+
    (?:(?P<way>NEXT|PRIOR|FIRST|LAST|ABSOLUTE|RELATIVE|FORWARD|BACKWARD|ALL)\s+)?
    (?:(?P<count>[+-]?\d+|ALL)\s+)?
    (?:(?:FROM|IN)\s+)?
    (?P<name>"(?:[^"]|"")+"|\w+)
    (?:\s+WITH\s*\(\s*TIMEOUT\s*=?\s*'(?P<timeout>[^']*)'\s*\))?\s*""",
    re.I | re.X,
)


@dataclass(frozen=True)
class CursorFetch:
    """What FETCH or MOVE asks for: `count` rows forward, back where it is negative, or the row of a place."""

    name: str
    way: str  # FORWARD, ABSOLUTE or RELATIVE
    count: int
    timeout_ms: int | None = None


def _parsed(fragment: SqlFragment) -> CursorFetch:
    """
    >>> from millpond.sql.text.parse import statements
    >>> _parsed(statements("FETCH BACKWARD 10 FROM c", "postgres")[0])
    CursorFetch(name='c', way='FORWARD', count=-10, timeout_ms=None)
    """
    found = _FETCH.fullmatch(fragment.sql)
    if found is None:
        fragment.fail("FETCH should be written FETCH 10 FROM cursor", 0)
        raise AssertionError
    way, count = (found["way"] or "").upper(), (found["count"] or "").upper()
    number = ALL if "ALL" in (way, count) else int(count or 1)
    match way:
        case "FIRST" | "LAST":
            way, number = "ABSOLUTE", 1 if way == "FIRST" else -1
        case "PRIOR" | "BACKWARD":
            way, number = "FORWARD", -number
        case "ABSOLUTE" | "RELATIVE":
            pass
        case _:
            way = "FORWARD"
    name = found["name"]
    name = name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
    timeout = None if found["timeout"] is None else milliseconds("timeout", found["timeout"])
    return CursorFetch(name, way, number, timeout)
