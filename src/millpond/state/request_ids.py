"""The ids that clients give to their requests, so that a request that is sent again counts once.

Law: of all inbox entries with one id, the first that can be executed counts.  The process that runs the pond
claims the id for the number of that entry before it admits it; a claim is never changed, so the answer stays
the same after a crash and for every coordinator.  Ids are remembered for `IDS_KEPT` entries, then collected.
"""

from __future__ import annotations

import xxhash

from millpond.state.store.store import MissingError, Put, Store

PREFIX = "requests/"
IDS_KEPT = 100_000  # entries of the inbox after which an id may be forgotten
ARG = "request"  # in the args of an inbox entry: the client's id
_BY_ENTRY = f"{PREFIX}by_entry/"


def claimed_by(store: Store, request: str) -> int | None:
    """The number of the entry that counts for an id, if the id is known."""
    try:
        return int(store.get(_name(request)))
    except MissingError:
        return None


def claim(store: Store, request: str, number: int) -> bool:
    """Does the entry count?  Raises UnavailableError if that cannot be decided now."""
    first = claimed_by(store, request)
    while first is None:
        # The collection finds an id by the number of its entry.
        store.put_new(f"{_BY_ENTRY}{number:016d}-{_digest(request)}", b"")
        if store.put_new(_name(request), str(number).encode()) is Put.WON:
            return True
        first = claimed_by(store, request)
    return first == number


def expired(store: Store, next_entry: int) -> list[str]:
    """The files of ids that are old enough to be forgotten, in the order in which to delete them."""
    limit = f"{_BY_ENTRY}{max(0, next_entry - IDS_KEPT):016d}"
    found: list[str] = []
    for name in store.list(_BY_ENTRY):
        if name < limit:
            found += [f"{PREFIX}{name.rpartition('-')[2]}", name]
    return found


def _name(request: str) -> str:
    return f"{PREFIX}{_digest(request)}"


def _digest(request: str) -> str:
    return xxhash.xxh3_128_hexdigest(request.encode())
