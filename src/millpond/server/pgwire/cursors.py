"""Cursors: DECLARE, FETCH, MOVE and CLOSE, over results and over subscriptions.

A cursor over a subscription gives the changes since the last FETCH.  FETCH waits until there is one;
`FETCH … WITH (timeout = '1s')` gives up after that time with no rows.
"""

from __future__ import annotations

import re

import pyarrow as pa

from millpond.server.client_session import ClientSession
from millpond.server.pgwire.error_reports import PgError
from millpond.server.pgwire.outcome import Outcome, PgCursor
from millpond.server.pgwire.session_settings import milliseconds
from millpond.server.pgwire.subscription import SubscriptionPump
from millpond.sql.text.parse import SqlFragment

ALL = 1 << 62


class Cursors:
    def __init__(self, client: ClientSession) -> None:
        self._client = client
        self._cursors: dict[str, PgCursor] = {}

    def declare(self, name: str, made: Outcome, *, held: bool, binary: bool) -> None:
        if name in self._cursors:
            raise PgError("42P03", f'cursor "{name}" already exists')
        if made.columns is None:
            raise PgError("42P11", "a cursor needs a query")
        pump = None if made.stream is None else SubscriptionPump(self._client, made.stream)
        self._cursors[name] = PgCursor(
            made.columns, made.table, pump, held=held or pump is not None, binary=binary
        )

    def columns_of(self, name: str) -> list[tuple[str, str]] | None:
        """The columns of a cursor, which is a portal, too; None if there is none of that name."""
        found = self._cursors.get(name)
        return None if found is None else found.columns

    def named(self, fragment: SqlFragment) -> PgCursor:
        """The cursor that FETCH or MOVE names."""
        return self._get(_parsed(fragment)[0])

    def _get(self, name: str) -> PgCursor:
        found = self._cursors.get(name)
        if found is None:
            raise PgError("34000", f'cursor "{name}" does not exist')
        return found

    async def fetch(self, fragment: SqlFragment) -> Outcome:
        name, count, timeout_ms = _parsed(fragment)
        cursor, verb = self._get(name), fragment.word(0)
        if cursor.subscription is not None:
            rows = await self._follow(cursor, count, timeout_ms)
        else:
            rows = _moved(cursor, count)
        if verb == "MOVE":
            return Outcome(f"MOVE {rows.num_rows}")
        return Outcome(f"FETCH {rows.num_rows}", cursor.columns, rows)

    async def _follow(self, cursor: PgCursor, count: int, timeout_ms: int | None) -> pa.Table:
        pump = cursor.subscription
        if cursor.table is None or cursor.at >= cursor.table.num_rows:
            timeout = None if timeout_ms is None else timeout_ms / 1000
            cursor.table, cursor.at = await self._client.cancellable(pump.next(timeout), pump.cancel), 0
        parts = [] if cursor.table is None else [_moved(cursor, count)]
        while count > sum(p.num_rows for p in parts) and cursor.table is not None:
            cursor.table, cursor.at = await pump.next(0), 0
            if cursor.table is not None:
                parts.append(_moved(cursor, count - sum(p.num_rows for p in parts)))
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


def _moved(cursor: PgCursor, count: int) -> pa.Table:
    """The next rows; a negative count goes back."""
    assert cursor.table is not None
    if count < 0:
        first = max(0, cursor.at + count - 1)
        found = cursor.table.slice(first, max(0, cursor.at - 1 - first))
        cursor.at = first
        return found
    found = cursor.table.slice(cursor.at, count)
    cursor.at += found.num_rows
    return found


_FETCH = re.compile(
    r"""(?:FETCH|MOVE)\s+
    (?:(?P<way>NEXT|PRIOR|FIRST|ABSOLUTE|RELATIVE|FORWARD|BACKWARD|ALL)\s+)?
    (?:(?P<count>[+-]?\d+|ALL)\s+)?
    (?:(?:FROM|IN)\s+)?
    (?P<name>"(?:[^"]|"")+"|\w+)
    (?:\s+WITH\s*\(\s*TIMEOUT\s*=?\s*'(?P<timeout>[^']*)'\s*\))?\s*""",
    re.I | re.X,
)


def _parsed(fragment: SqlFragment) -> tuple[str, int, int | None]:
    """The cursor, how many rows, and how long to wait for them.

    >>> from millpond.sql.text.parse import statements
    >>> _parsed(statements("FETCH FORWARD 10 FROM c", "postgres")[0])
    ('c', 10, None)
    """
    found = _FETCH.fullmatch(fragment.sql)
    if found is None:
        fragment.fail("FETCH should be written FETCH 10 FROM cursor", 0)
        raise AssertionError
    way, count = (found["way"] or "").upper(), (found["count"] or "").upper()
    if way in ("PRIOR", "FIRST", "ABSOLUTE", "RELATIVE", "BACKWARD"):
        raise PgError("0A000", f"FETCH {way} is not supported", hint="a cursor only goes forward")
    number = ALL if "ALL" in (way, count) else int(count or 1)
    name = found["name"]
    name = name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
    timeout = None if found["timeout"] is None else milliseconds("timeout", found["timeout"])
    return name, number, timeout
