"""The inbox: a queue of rows for tables and of commands, appended by any process, in one order.

An entry is durable when `append` returns.  Entries are executed in the order of their numbers; the manifest
has the number of the next one.  Every client uses this module: `append` to send, `next_entry` to see how far
the pond is, and `executing_epoch` to find out what happened to an entry.  Clients differ only in how they
wait.

Law: no entry is skipped.  A writer takes number n + 1 only after it has seen number n, and entries are
deleted only after they were executed.  So an entry that is missing, not executed, and followed by another one
is lost data.  Every entry has a checksum, which is verified by every read.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from millpond.errors import DataError, UnavailableError
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.state.store.store import MissingError, Put, PutUnknownError, Store, StoreError

PREFIX = "inbox/"
FORMAT = 2  # the format of an entry; version 1 has neither this number nor a checksum
_FORMAT_MARK = b'{"format": %d, ' % FORMAT
_SEAL = b', "xxh3": "%016x"}'
_SEALED = re.compile(rb', "xxh3": "([0-9a-f]{16})"\}\Z')
FIRST_ENTRY = "made"  # in a split: the first of the entries whose changes its rows are
COUNTS = "counts"  # in a split: the number of rows that each of its entries changes
POSITION = "inbox"  # the key in a manifest's positions of the number of the next entry
ROW_ENTRY = "rows"  # the kind of an entry with rows for a table
# the kind of an entry with a statement that changes rows; its changes are computed when it is executed
LOGIC = "sql"
# the kind of an entry with the changes of a transaction, executed in one epoch or not at all
TRANSACTION = "transaction"
ROW_KINDS = frozenset({ROW_ENTRY, LOGIC, TRANSACTION})  # every other entry is a command
ABORTED = "aborted"  # in a split: by entry, why a transaction was not executed although it is valid
DUPLICATE = "duplicate"  # the command that stands for rows whose request was executed: `state.request_ids`


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
    """Append an entry; returns its number.  Several writers may race: each gets a different number.

    `start` is the number of the next entry to execute, as far as the caller knows.
    """
    # If the outcome of a put is unknown, the id distinguishes our entry from an equal one of another writer.
    data = encode(kind, args, payload, id=os.urandom(8).hex())
    number = max(start, _end(store, start))
    while True:
        if _took(store, number, data) and not _surely_used(store, number):
            return number
        number = max(number + 1, _end(store, number + 1))


def encode(kind: str, args: Mapping[str, Any], payload: bytes, *, id: str) -> bytes:
    """Encode an entry: a line of JSON that ends with a checksum of the entry, and the payload."""
    body = json.dumps({"format": FORMAT, "kind": kind, "args": dict(args), "id": id}).encode()[:-1]
    return body + _SEAL % _checksum(body, payload) + b"\n" + payload


def _checksum(body: bytes, payload: bytes) -> int:
    digest = xxhash.xxh3_64(body)
    digest.update(b"\n")
    digest.update(payload)
    return digest.intdigest()


def numbers(store: Store, after: str | None = None) -> list[int]:
    """The numbers of the stored entries, in order."""
    found = (name[len(PREFIX) :] for name in store.list(PREFIX, after=after))
    return [int(number) for number in found if number.isdecimal()]


def _end(store: Store, start: int) -> int:
    """The number after the last entry; DataError if one from `start` on is missing."""
    entries = numbers(store)
    if not entries:
        return 0
    require_none_missing(store, start, entries)
    return entries[-1] + 1


def require_none_missing(store: Store, position: int, entries: Sequence[int]) -> None:
    """Raise DataError for the first lost entry from `position` on, if a later one was found."""
    there = len(entries) - bisect_left(entries, position)
    if not entries or there == entries[-1] + 1 - position:
        return
    known = set(entries)
    number = position
    while number < entries[-1]:
        if number in known or store.size(entry_name(number)) is not None:
            number += 1
        elif number < (executed := _executed(store)):
            number = executed
        else:
            raise lost(number)


def is_lost(store: Store, number: int) -> bool:
    """Is an entry neither stored nor executed, although a later one was seen?

    A listing may lag, and the caller's number of the next entry may be old.  So this reads the name itself,
    and then the newest manifest.
    """
    return store.size(entry_name(number)) is None and number >= _executed(store)


def _executed(store: Store) -> int:
    """The number of the next entry to execute, according to the newest manifest."""
    head = history.read_head(store)
    return next_entry(None if head is None else history.newer_head(store, head))


def next_entry(manifest: Manifest | None) -> int:
    """The number of the next entry to execute, as of a manifest; None means a pond without epochs."""
    return 0 if manifest is None else int(manifest.positions.get(POSITION, 0))


def executing_epoch(store: Store, head: Manifest, number: int) -> Manifest:
    """The epoch that executed an entry: the first one whose next entry is after it.

    If the entry started a backfill over several epochs, it is the epoch that ended the backfill.
    """
    manifest = head
    while manifest.epoch > manifest.floor:
        before = history.find_manifest(store, manifest.epoch - 1)
        if before is None or next_entry(before) <= number:
            break
        if before.backfill is not None and before.backfill.entry == number:
            break
        manifest = before
    return manifest


def lost(number: int) -> DataError:
    return DataError(
        f"inbox entry {number} is missing",
        detail=f"{entry_name(number)} was not executed and is not there; nothing behind it can be executed",
        hint="restore the file from a backup; or give the entry up for lost: "
        'write {"kind": "skip", "args": {}} to a file of that name',
    )


def _took(store: Store, number: int, data: bytes) -> bool:
    """Did our put win the number?  If it was not surely won, the stored entry decides.

    Also if the number is taken: a proxy may repeat a put whose answer was lost, and its repetition loses.
    """
    while True:
        try:
            if store.put_new(entry_name(number), data) is Put.WON:
                return True
        except UnavailableError as error:
            if not getattr(error, "unknown", False):
                raise
        try:
            return store.get(entry_name(number)) == data
        except MissingError:
            continue
        except StoreError as error:
            raise PutUnknownError(
                f"cannot say whether inbox entry {number} was written",
                detail=str(error),
                hint="look at the table, and write again if the rows are not there",
            ) from error


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
    """Did we take a number whose entry was already executed and collected?  Then no process reads ours.

    Entries are collected from the oldest on, and never the last one that was executed.  So if the previous
    entry still exists, our number was never used before; behind a used number there is a gap, or the
    remaining entries.
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
    """Parse and verify an entry; DataError if its bytes are not those that were written.

    An entry that is intact but invalid has an empty kind, and is refused when it is executed.
    """
    line, _, payload = raw.partition(b"\n")
    seal = _SEALED.search(line)
    if seal is not None or line.startswith(_FORMAT_MARK):
        body = line if seal is None else line[: seal.start()]
        if seal is None or int(seal[1], 16) != _checksum(body, payload):
            raise _damaged(number, raw, "its checksum does not match its content")
    try:
        head = json.loads(line)
    except (ValueError, RecursionError) as broken:
        raise _damaged(number, raw, str(broken)) from broken
    if not isinstance(head, dict) or "kind" not in head or "args" not in head:
        raise _damaged(number, raw, "it names no kind and no args")
    if not isinstance(head["kind"], str) or not isinstance(head["args"], dict):
        return Entry(number, "", {}, payload)
    return Entry(number, head["kind"], head["args"], payload)


def _damaged(number: int, raw: bytes, why: str) -> DataError:
    return DataError(
        f"inbox entry {number} cannot be read",
        detail=f"{entry_name(number)}, {len(raw)} bytes: {why}",
        hint="the file is damaged: keep it, and restore it from a backup",
    )


def beyond(store: Store, position: int, limit: int = 1000, bytes_max: int = 256 << 20) -> list[Entry]:
    """Entries from `position` on, in order; about `bytes_max` bytes, at least one entry.

    If an entry is lost, those before it are returned; if it is the first, DataError is raised.
    """
    later: list[Entry] = []
    size = 0
    last = max(numbers(store, after=entry_name(position - 1) if position else None), default=-1)
    for number in range(position, min(last + 1, position + limit)):
        if size > bytes_max:
            break
        try:
            later.append(read(store, number))
        except MissingError:
            if not later and is_lost(store, number):
                raise lost(number) from None
            break
        size += len(later[-1].payload)
    return later
