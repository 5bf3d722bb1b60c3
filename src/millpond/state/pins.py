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
    last: int  # everything from `epoch` to `last` is kept
    expires_us: int | None  # None: until removed (a fork)
    why: str = "reader"

    @property
    def epochs(self) -> range:
        return range(self.epoch, self.last + 1)


def pin(
    store: Store, epoch: int, expires_us: int | None, *, last: int | None = None, why: str = "reader"
) -> Pin:
    """Keep an epoch, or all from it to `last`; believed only after the floor was looked at again."""
    made = Pin(f"{PREFIX}{epoch:016d}-{os.urandom(8).hex()}", epoch, last or epoch, expires_us, why)
    data = {"epoch": epoch, "last": made.last, "expires_us": expires_us, "why": why}
    store.put_new(made.name, json.dumps(data).encode())
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
        found.append(Pin(name, data["epoch"], data["last"], data["expires_us"], data["why"]))
    return found
