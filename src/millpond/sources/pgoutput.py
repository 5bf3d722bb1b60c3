"""Decodes the messages of PostgreSQL's logical decoding plugin `pgoutput`, version 1 of its protocol.

See "Logical Replication Message Formats" in PostgreSQL's manual.  Numbers are big-endian; a row is a list of
columns, each NULL, *unchanged* (a large value that an update did not touch, which the log does not have), or
text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

UNCHANGED = object()
Value = bytes | None | object  # text, NULL or UNCHANGED
Row = list[Value]

BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE = b"BCRIUDT"
CHANGES = frozenset((INSERT, UPDATE, DELETE, TRUNCATE))

_U16, _U32 = Struct(">H"), Struct(">I")
_COMMIT = Struct(">xBQQq")  # flags, LSN of the commit, LSN after it, time
_NULL, _KEPT, _TEXT = b"nut"
_NEW, _OLD, _KEY = b"NOK"


@dataclass(frozen=True)
class LoggedColumn:
    name: str
    type: int  # the OID of its type
    modifier: int
    in_key: bool  # part of the replica identity


@dataclass(frozen=True)
class LoggedRelation:
    oid: int
    schema: str
    name: str
    identity: str  # d: the primary key, f: all columns, i: an index, n: nothing
    columns: tuple[LoggedColumn, ...]


@dataclass(frozen=True)
class RowChange:
    """An insert has only a new row, a delete only an old one; an update has an old one if its key changed."""

    relation: int
    old: Row | None
    new: Row | None


def commit_end(message: bytes) -> int:
    """The LSN behind a commit."""
    return int(_COMMIT.unpack_from(message)[2])


def truncated(message: bytes) -> tuple[int, ...]:
    """The OIDs of the tables that a TRUNCATE empties."""
    (count,) = _U32.unpack_from(message, 1)
    return tuple(int(_U32.unpack_from(message, 6 + 4 * n)[0]) for n in range(count))


def relation(message: bytes) -> LoggedRelation:
    """
    >>> column = b"\\1id\\0\\0\\0\\0\\x14\\xff\\xff\\xff\\xff"
    >>> relation(b"R\\0\\0\\0\\7" + b"public\\0t\\0d" + b"\\0\\1" + column).columns
    (LoggedColumn(name='id', type=20, modifier=-1, in_key=True),)
    """
    (oid,) = _U32.unpack_from(message, 1)
    schema, at = _text(message, 5)
    name, at = _text(message, at)
    identity = chr(message[at])
    (count,) = _U16.unpack_from(message, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        in_key = bool(message[at] & 1)
        column, at = _text(message, at + 1)
        (kind,) = _U32.unpack_from(message, at)
        (modifier,) = _U32.unpack_from(message, at + 4)
        columns.append(LoggedColumn(column, kind, modifier - (1 << 32 if modifier >> 31 else 0), in_key))
        at += 8
    return LoggedRelation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def change(message: bytes) -> RowChange:
    """An insert, an update or a delete."""
    kind = message[0]
    (oid,) = _U32.unpack_from(message, 1)
    old: Row | None = None
    at = 5
    if kind != INSERT and message[at] in (_OLD, _KEY):
        old, at = _row(message, at + 1)
    if kind == DELETE:
        return RowChange(oid, old, None)
    new, _ = _row(message, at + 1)
    return RowChange(oid, old, new)


def _row(message: bytes, at: int) -> tuple[Row, int]:
    (count,) = _U16.unpack_from(message, at)
    at += 2
    found: Row = []
    for _ in range(count):
        kind = message[at]
        at += 1
        if kind == _TEXT:
            (size,) = _U32.unpack_from(message, at)
            at += 4
            found.append(message[at : at + size])
            at += size
        else:
            found.append(None if kind == _NULL else UNCHANGED)
    return found, at


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


def picked(row: Row | None, places: Sequence[int]) -> Row | None:
    """Some columns of a row, in another order."""
    return None if row is None else [row[place] for place in places]
