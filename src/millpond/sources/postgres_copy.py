"""The first copy of replicated tables: all rows as of the moment at which the replication slot begins.

Law: no gap and no overlap.  Creating the slot exports a snapshot of exactly the transactions that the slot
will not report.  All tables are copied in one transaction on that snapshot.

The copy is in the hands of one process: if that one dies, the snapshot is gone, and the next process begins
with a new slot and a truncation of what was copied.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.errors import InvalidError
from millpond.sources import postgres_connection, postgres_publication
from millpond.sources.postgres_schema import PostgresTable, identifier

_PIECE_ROWS = 20_000
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class CopiedRows:
    """Some rows of a table, as CSV with every value in quotes, except for NULL."""

    table: int
    first: int  # the number of the first row, over all tables
    rows: int
    data: bytes

    @property
    def last(self) -> int:
        return self.first + self.rows


class TableCopy:
    """A copy in progress."""

    def __init__(self, address: str, slot: str, publication: str, tables: Sequence[PostgresTable]) -> None:
        self.id = secrets.token_hex(8)
        self._address = address
        self._tables = tables
        self._kept: list[CopiedRows] = []  # read, and perhaps not committed yet
        self.finished = False
        prepare(address, slot, publication, tables)
        psycopg = postgres_connection.library()
        maker = postgres_connection.connect(address, replication="database")
        try:
            self.lsn, snapshot = _make_slot(maker, slot)
            self._reader = postgres_connection.connect(address)
            self._reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._reader.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        except psycopg.Error as error:
            raise postgres_connection.refused(address, error) from None
        finally:
            maker.close()
        self._pieces = self._read()

    def after(self, row: int, rows: int) -> list[CopiedRows] | None:
        """The pieces from a row on, about `rows` rows; None if it no longer has them."""
        while self._kept and self._kept[0].last <= row:
            self._kept.pop(0)
        if self._kept and self._kept[0].first != row:
            return None
        psycopg = postgres_connection.library()
        try:
            while not self.finished and sum(p.rows for p in self._kept) < rows:
                piece = next(self._pieces, None)
                if piece is None:
                    self.finished = True
                    self._reader.close()
                else:
                    self._kept.append(piece)
        except psycopg.Error as error:
            raise postgres_connection.refused(self._address, error) from None
        return list(self._kept)

    def close(self) -> None:
        self._pieces.close()
        with contextlib.suppress(Exception):
            self._reader.close()

    def _read(self) -> Generator[CopiedRows]:
        done = 0
        for number, table in enumerate(self._tables):
            columns = ", ".join(identifier(name) for name in table.schema.names)
            place = f"{identifier(table.namespace)}.{identifier(table.name)}"
            wanted = f"COPY (SELECT {columns} FROM {place}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
            lines: list[bytes] = []
            size = 0
            with self._reader.cursor().copy(wanted) as rows:
                for line in rows:  # the server sends one row at a time
                    lines.append(bytes(line))
                    size += len(line)
                    if len(lines) >= _PIECE_ROWS or size >= _PIECE_BYTES:
                        yield CopiedRows(number, done, len(lines), b"".join(lines))
                        done += len(lines)
                        lines, size = [], 0
            if lines:
                yield CopiedRows(number, done, len(lines), b"".join(lines))
                done += len(lines)


_copies: dict[tuple[int, str, str], TableCopy] = {}


def current(address: str, slot: str) -> TableCopy | None:
    """The copy that this process is making."""
    return _copies.get((os.getpid(), address, slot))


def begin(address: str, slot: str, publication: str, tables: Sequence[PostgresTable]) -> TableCopy:
    """Begin a copy with a new slot; the old slot is dropped."""
    end(address, slot)
    made = TableCopy(address, slot, publication, tables)
    _copies[os.getpid(), address, slot] = made
    return made


def end(address: str, slot: str) -> None:
    found = _copies.pop((os.getpid(), address, slot), None)
    if found is not None:
        found.close()


def prepare(address: str, slot: str, publication: str, tables: Sequence[PostgresTable]) -> None:
    """Check the server, create the publication if there is none, drop the slot of an unfinished copy."""
    psycopg = postgres_connection.library()
    server = postgres_connection.shared(address)
    try:
        level = server.execute("SHOW wal_level").fetchone()[0]
        if level != "logical":
            raise InvalidError(
                "the PostgreSQL server does not log changes in a form that can be read",
                detail=f"wal_level is {level!r} on {postgres_connection.place_of(address)}",
                hint="ALTER SYSTEM SET wal_level = 'logical', and restart the server",
            )
        postgres_publication.ensure(server, publication, tables)
        if server.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [slot]).fetchone():
            server.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    except psycopg.Error as error:
        raise postgres_connection.refused(address, error) from None


def _make_slot(maker: Any, slot: str) -> tuple[int, str]:
    """Create the slot; returns where it begins, and the name of its snapshot."""
    made = maker.execute(f"CREATE_REPLICATION_SLOT {identifier(slot)} LOGICAL pgoutput EXPORT_SNAPSHOT")
    row = made.fetchone()
    return lsn_number(row[1]), row[2]


def lsn_number(text: str) -> int:
    """
    >>> lsn_number("1/0000000A")
    4294967306
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(number: int) -> str:
    """
    >>> lsn_text(4294967306)
    '1/A'
    """
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
