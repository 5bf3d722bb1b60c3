"""Tracks which `Pond` object of this process holds a location, so that a second one is refused.

Law: at most one object of a process runs a pond.  Locations are compared by identity (links are followed, the
spelling of the uri is ignored), and a location whose object was closed or garbage-collected is free.
"""

from __future__ import annotations

import gc
import os
import threading
import weakref
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qsl, unquote

from millpond.errors import HeldError

_SAME_SCHEME = {"s3a": "s3", "abfss": "abfs"}


class Holder(Protocol):
    @property
    def in_background(self) -> bool:
        """Does a background thread run the pond?"""


@dataclass(frozen=True)
class _Held:
    place: str
    holder: weakref.ref[Holder]


_lock = threading.Lock()
_held: list[_Held] = []
os.register_at_fork(after_in_child=_held.clear)  # a forked child has no thread that could run anything


def location_of(uri: str) -> str:
    """The identity of the location of a store's uri.

    >>> location_of("s3://b/p/?cache=%2Fc&endpoint=http%3A%2F%2Fh"), location_of("s3a://b/p")
    ('s3://b/p?endpoint=http://h', 's3://b/p')
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return os.path.realpath(uri)
    body, _, query = rest.partition("?")
    if scheme == "file":
        return os.path.realpath(unquote(body.removeprefix("localhost")))
    endpoint = dict(parse_qsl(query)).get("endpoint")
    where = f"{_SAME_SCHEME.get(scheme, scheme)}://{body.rstrip('/')}"
    return where if endpoint is None else f"{where}?endpoint={endpoint.rstrip('/')}"


def other(location: str, holder: Holder) -> Holder | None:
    """Another object of this process that holds the location, if there is one."""
    with _lock:
        holder_of_pond = _other(location, holder)
    if holder_of_pond is not None:
        del holder_of_pond
        gc.collect()  # an unreachable object may not be collected yet
        with _lock:
            holder_of_pond = _other(location, holder)
    return holder_of_pond


def claim(location: str, holder: Holder, *, take_over: bool = False) -> None:
    """Claim the location; refused while another object of this process holds it, unless it is taken over."""
    if not take_over and other(location, holder) is not None:
        raise refusal(location)
    with _lock:
        if not take_over and _other(location, holder) is not None:  # another thread was faster
            raise refusal(location)
        _held[:] = [h for h in _held if not _is_same(h.place, location)]
        _held.append(_Held(location, weakref.ref(holder)))


def release(holder: Holder) -> None:
    with _lock:
        _held[:] = [h for h in _held if h.holder() is not None and h.holder() is not holder]


def refusal(location: str) -> HeldError:
    return HeldError(
        "this pond is already open and held by another Pond object of this process",
        detail=f"process {os.getpid()}, {location}",
        hint="close() the first one, use it instead of opening the pond again, or open with take_over=True "
        "to take the pond from it",
    )


def _other(location: str, holder: Holder) -> Holder | None:
    for one in _held:
        candidate = one.holder()
        if candidate is not None and candidate is not holder and _is_same(one.place, location):
            return candidate
    return None


def _is_same(one: str, other: str) -> bool:
    if one == other:
        return True
    if "://" in one or "://" in other:
        return False
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist (yet)
        return False
