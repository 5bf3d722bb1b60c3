"""Pins: how a reader, or a fork, keeps an epoch's files from being collected.

A pin is an immutable object that says an epoch and when it expires; renewing
writes another.  The order of acts makes it safe: a reader pins, *then* checks
that the floor has not passed its epoch; the collector raises the floor by a
commit, *then* reads the pins.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from millpond.state.store import MissingError, Store

PREFIX = "pins/"


@dataclass(frozen=True)
class Pin:
    name: str
    epoch: int
    expires_us: int | None  # None: until removed (a fork)
    why: str = "reader"


def pin(
    store: Store, epoch: int, expires_us: int | None, *, why: str = "reader", ident: str | None = None
) -> Pin:
    name = f"{PREFIX}{epoch:016d}-{ident or os.urandom(8).hex()}"
    made = Pin(name, epoch, expires_us, why)
    store.put_new(name, json.dumps({"epoch": epoch, "expires_us": expires_us, "why": why}).encode())
    return made


def unpin(store: Store, made: Pin) -> None:
    store.delete(made.name)


def pins(store: Store) -> list[Pin]:
    found = []
    for name in store.list(PREFIX):
        try:
            data = json.loads(store.get(name))
        except MissingError:  # removed by its owner between the listing and the read
            continue
        found.append(Pin(name, data["epoch"], data["expires_us"], data["why"]))
    return found
