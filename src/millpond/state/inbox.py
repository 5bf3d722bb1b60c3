"""The inbox: one door for rows of tables and for control, from any process.

An entry is durable when `append` returns.  Its number is its place in the
order in which entries are executed; the manifest keeps how far that is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.errors import DataError, UnavailableError
from millpond.state.store import Put, Store

PREFIX = "inbox/"


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
    head = json.dumps({"kind": kind, "args": dict(args)}).encode() + b"\n"
    names = store.list(PREFIX)
    number = max(start, int(names[-1][len(PREFIX) :]) + 1 if names else 0)
    while True:
        try:
            if store.put_new(entry_name(number), head + payload) is Put.WON:
                return number
        except UnavailableError as error:
            if not getattr(error, "unknown", False):
                raise
            # It may have landed: whoever holds that place tells.
            names = store.list(PREFIX)
            if entry_name(number) in names and store.get(entry_name(number)) == head + payload:
                return number
            continue
        number += 1


def read(store: Store, number: int) -> Entry:
    return parse(number, store.get(entry_name(number)))


def parse(number: int, raw: bytes) -> Entry:
    line, _, payload = raw.partition(b"\n")
    try:
        head = json.loads(line)
        return Entry(number, head["kind"], head["args"], payload)
    except (ValueError, KeyError, TypeError) as broken:
        raise DataError(f"inbox entry {number} cannot be read", detail=str(broken)) from broken


def beyond(store: Store, position: int, limit: int = 1000) -> list[Entry]:
    """Entries from `position` on, without gaps, in order."""
    found: list[Entry] = []
    after = entry_name(position - 1) if position else None
    for name in store.list(PREFIX, after=after)[:limit]:
        number = int(name[len(PREFIX) :])
        if number != position + len(found):
            break
        found.append(read(store, number))
    return found
