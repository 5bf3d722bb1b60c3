"""The inbox: one door for rows of tables and for control, from any process.

An entry is durable when `append` returns.  Its number is its place in the
order in which entries are executed; the manifest keeps how far that is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.errors import DataError, UnavailableError
from millpond.state.store import MissingError, Put, PutUnknownError, Store, StoreError

PREFIX = "inbox/"
LOGIC = "sql"  # the kind of an entry that changes rows by a statement, when its turn comes


def entry_name(number: int) -> str:
    return f"{PREFIX}{number:016d}"


@dataclass(frozen=True)
class Entry:
    number: int
    kind: str
    args: Mapping[str, Any]
    payload: bytes

    @property
    def name(self) -> str:
        return entry_name(self.number)


def append(store: Store, kind: str, args: Mapping[str, Any], payload: bytes = b"", *, start: int = 0) -> int:
    """Put an entry at the end; its number. Several writers may race, each gets a place of its own."""
    # The id tells our entry from an equal one of somebody else, when an answer is lost.
    head = {"kind": kind, "args": dict(args), "id": os.urandom(8).hex()}
    data = json.dumps(head).encode() + b"\n" + payload
    number = max(start, _end(store))
    while True:
        if _took(store, number, data) and not _surely_used(store, number):
            return number
        number = max(number + 1, _end(store))


def _end(store: Store) -> int:
    names = store.list(PREFIX)
    return int(names[-1][len(PREFIX) :]) + 1 if names else 0


def _took(store: Store, number: int, data: bytes) -> bool:
    """Is the place ours now?  Where the answer is lost, whoever holds the place tells."""
    while True:
        try:
            return store.put_new(entry_name(number), data) is Put.WON
        except UnavailableError as error:
            if not getattr(error, "unknown", False):
                raise
        try:
            return store.get(entry_name(number)) == data
        except MissingError:
            continue


def _surely_used(store: Store, number: int) -> bool:
    try:
        return _was_used(store, number)
    except StoreError as error:
        if error.unknown:
            raise
        raise PutUnknownError(
            f"inbox entry {number} is written, but may come too late to be executed", detail=str(error)
        ) from error


def _was_used(store: Store, number: int) -> bool:
    """Did we take a place whose entry was executed and collected while we slept?  Then nobody looks there.

    Entries are collected from the oldest on, and never the last one that was executed.  So where the one
    before us is still there, ours was never used; and behind a used place there is a hole, or the rest.
    """
    if number and store.size(entry_name(number - 1)) is not None:
        return False
    later = store.list(PREFIX, after=entry_name(number))
    if later and later != [entry_name(number + 1 + i) for i in range(len(later))]:
        store.delete(entry_name(number))
        return True
    if later and number:
        raise PutUnknownError(
            f"inbox entry {number} may or may not be executed",
            detail="all entries before it were collected while it was written",
            hint="look at the table, and write again if the rows are not there",
        )
    return False


def read(store: Store, number: int) -> Entry:
    return parse(number, store.get(entry_name(number)))


def parse(number: int, raw: bytes) -> Entry:
    line, _, payload = raw.partition(b"\n")
    try:
        head = json.loads(line)
        return Entry(number, head["kind"], head["args"], payload)
    except (ValueError, KeyError, TypeError) as broken:
        raise DataError(f"inbox entry {number} cannot be read", detail=str(broken)) from broken


def beyond(store: Store, position: int, limit: int = 1000, bytes_max: int = 256 << 20) -> list[Entry]:
    """Entries from `position` on, without gaps, in order; about `bytes_max` of them, at least one."""
    found: list[Entry] = []
    size = 0
    after = entry_name(position - 1) if position else None
    for name in store.list(PREFIX, after=after)[:limit]:
        number = int(name[len(PREFIX) :])
        if number != position + len(found) or size > bytes_max:
            break
        found.append(read(store, number))
        size += len(found[-1].payload)
    return found
