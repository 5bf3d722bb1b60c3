"""The ids that clients give to their requests, so that a request that is sent again counts once.

An id is a text of the client's own, or the name of the client with a number that rises from request to
request, as a streaming query of Spark numbers its batches.

Law: of all inbox entries with one id, the first that can be executed counts, also after a crash and for every
coordinator.  Both forms are decided here.

- **Numbers** are remembered for ever: the manifest has the last executed number of each client, in the commit
  that has the rows.  A number that is not above it is a repetition.
- **Texts** have no order, so each is remembered by itself: the process that runs the pond claims the id for
  the number of an entry before it admits the entry, and a claim is never changed.  Texts are remembered for
  `IDS_KEPT` entries, then collected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import xxhash

from millpond.errors import InvalidError
from millpond.state.store.store import MissingError, Put, Store

PREFIX = "requests/"
IDS_KEPT = 100_000  # entries of the inbox after which a text may be forgotten
# In the args of an inbox entry: a text, or the client and the number of its request.
TEXT, CLIENT, NUMBER = "request", "client", "batch"
_BY_ENTRY = f"{PREFIX}by_entry/"

Executed = Mapping[str, int]  # by client: the number of its last executed request


@dataclass(frozen=True)
class NumberedRequest:
    client: str
    number: int


Request = str | NumberedRequest


def checked(request: Any) -> Request:
    """The id that a user gives: a text, or a client and a number.

    >>> checked("order-17"), checked(("shop", 3))
    ('order-17', NumberedRequest(client='shop', number=3))
    """
    if isinstance(request, str) and request:
        return request
    if isinstance(request, tuple) and len(request) == 2:
        client, number = request
        counts = isinstance(number, int) and not isinstance(number, bool) and number >= 0
        if isinstance(client, str) and client and counts:
            return NumberedRequest(client, number)
    raise InvalidError(
        "the id of a request is a text, or a client and a number that rises",
        detail=f"got {request!r}"[:200],
        hint='request="order-17" or request=("shop-1", 17)',
    )


def args_of(request: Request) -> dict[str, Any]:
    """An id in the args of an inbox entry."""
    if isinstance(request, str):
        return {TEXT: request}
    return {CLIENT: request.client, NUMBER: request.number}


def request_of(args: Mapping[str, Any]) -> Request | None:
    """The id of an inbox entry, if it has one.

    >>> request_of({"table": "t", "client": "spark/1", "batch": 7})
    NumberedRequest(client='spark/1', number=7)
    """
    client, number, text = args.get(CLIENT), args.get(NUMBER), args.get(TEXT)
    if isinstance(client, str) and isinstance(number, int) and not isinstance(number, bool):
        return NumberedRequest(client, number)
    return text if isinstance(text, str) else None


def is_repeated(store: Store, executed: Executed, request: Request, entry: int | None = None) -> bool:
    """Does another entry count for this id?"""
    if isinstance(request, NumberedRequest):
        return request.number <= executed.get(request.client, -1)
    return claimed_by(store, request) not in (None, entry)


def claim(store: Store, request: Request, entry: int) -> bool:
    """Let an entry count, just before it is admitted; False if another one does.

    Raises UnavailableError if that cannot be decided now.
    """
    if isinstance(request, NumberedRequest):
        return True  # the commit that has its rows has its number
    first = claimed_by(store, request)
    while first is None:
        # The collection finds an id by the number of its entry.
        store.put_new(f"{_BY_ENTRY}{entry:016d}-{_digest(request)}", b"")
        if store.put_new(_name(request), str(entry).encode()) is Put.WON:
            return True
        first = claimed_by(store, request)
    return first == entry


def executed_after(before: Executed, entries: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The last executed number of each client, after the entries with these args.

    >>> executed_after({"a": 3, "b": 1}, [{"client": "a", "batch": 4}, {"table": "t"}])
    {'a': 4, 'b': 1}
    """
    requests = [request_of(args) for args in entries]
    return {**before, **{r.client: r.number for r in requests if isinstance(r, NumberedRequest)}}


def claimed_by(store: Store, request: str) -> int | None:
    """The number of the entry that counts for a text, if the text is known."""
    try:
        return int(store.get(_name(request)))
    except MissingError:
        return None


def expired(store: Store, next_entry: int) -> list[str]:
    """The files of texts that are old enough to be forgotten, in the order in which to delete them."""
    limit = f"{_BY_ENTRY}{max(0, next_entry - IDS_KEPT):016d}"
    names: list[str] = []
    for name in store.list(_BY_ENTRY):
        if name < limit:
            names += [f"{PREFIX}{name.rpartition('-')[2]}", name]
    return names


def _name(request: str) -> str:
    return f"{PREFIX}{_digest(request)}"


def _digest(request: str) -> str:
    return xxhash.xxh3_128_hexdigest(request.encode())
