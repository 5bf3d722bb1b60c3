"""The audit log of a pond: who ran which statement, when, and how it ended.

    audit/<newest record, microseconds, 16 digits>-<writer>-<number, 8 digits>   records, JSON lines, deflated

Each server writes files of its own.  A small file is replaced by a larger one that has its records, too; a
reader that finds both counts each record once.

Law: a file never changes.  Files are deleted, oldest first, when they are older than the time or together
larger than the size that the writer was told.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from millpond.errors import DataError
from millpond.state.store.store import MissingError, Put, Store

PREFIX = "audit/"
FILE_BYTES_MAX = 128 << 10  # a larger file is not replaced by one with more records


@dataclass(frozen=True)
class AuditRecord:
    """Equal statements of one client within a second or two are one record."""

    number: int  # among the records of its writer
    at_us: int  # of the first
    last_us: int
    user: str
    protocol: str
    address: str
    kind: str
    statement: str  # without secrets
    outcome: str  # "ok", or the kind of the error
    error: str | None
    count: int
    ms: float  # of all of them


class AuditWriter:
    """Writes the records of one server."""

    def __init__(self, store: Store, writer: str) -> None:
        self._store = store
        self._writer = writer
        self._number = 0
        self._open: tuple[str, list[AuditRecord]] | None = None  # the last file, if it is small

    def write(self, records: Sequence[AuditRecord]) -> None:
        """Make records durable."""
        before = self._open
        every = [*(() if before is None else before[1]), *records]
        data = zlib.compress("\n".join(json.dumps(asdict(one)) for one in every).encode())
        name = f"{PREFIX}{max(one.last_us for one in every):016d}-{self._writer}-{self._number:08d}"
        self._number += 1
        if self._store.put_new(name, data) is not Put.WON:
            raise DataError("another server writes the same audit log", detail=name)
        self._open = (name, every) if len(data) < FILE_BYTES_MAX else None
        if before is not None:
            self._store.delete(before[0])


def read_audit(store: Store) -> Iterator[AuditRecord]:
    """All records, oldest files first."""
    seen: set[tuple[str, int]] = set()
    for name in store.list(PREFIX):
        try:
            data = store.get(name)
        except MissingError:
            continue  # it was replaced or deleted meanwhile; what replaced it is read next time
        writer = name.removeprefix(PREFIX).split("-")[1]
        for one in _parsed(name, data):
            if (writer, one.number) not in seen:
                seen.add((writer, one.number))
                yield one


def delete_old(store: Store, before_us: int, bytes_max: int) -> int:
    """Delete files with only older records, and the oldest ones beyond a size; how many were deleted."""
    names = store.list(PREFIX)
    sizes = [store.size(name) or 0 for name in names]
    left, deleted = sum(sizes), 0
    for name, size in zip(names, sizes, strict=True):
        if left <= bytes_max and _newest_us(name) >= before_us:
            break
        store.delete(name)
        left, deleted = left - size, deleted + 1
    return deleted


def _newest_us(name: str) -> int:
    return int(name.removeprefix(PREFIX).split("-")[0])


def _parsed(name: str, data: bytes) -> Iterator[AuditRecord]:
    try:
        for line in zlib.decompress(data).decode().splitlines():
            yield AuditRecord(**json.loads(line))
    except (ValueError, TypeError, zlib.error) as broken:
        raise DataError("the audit log cannot be read", detail=f"{name}: {broken}") from broken
