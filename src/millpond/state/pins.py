"""Pins: how a reader, or a fork, keeps an epoch's files from being collected.

A pin is an immutable object that says an epoch and when it expires; renewing
writes another.  The order of acts makes it safe: a reader pins, *then* checks
that the floor has not passed its epoch; the collector raises the floor by a
commit, *then* reads the pins.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from millpond.errors import DataError
from millpond.state.seal import sealed, unsealed
from millpond.state.store import MissingError, Store

PREFIX = "pins/"
NO_EPOCH = 10**15  # of a pin that keeps a plan and no epoch: none has this number
FORMAT = 2  # of a pin; version 1 has neither this number nor a checksum


class DamagedPinError(DataError):
    """A pin that might keep anything: nothing may be collected while it is there."""


@dataclass(frozen=True)
class Pin:
    name: str
    epoch: int
    last: int  # everything from `epoch` to `last` is kept
    expires_us: int | None  # None: until removed (a fork)
    why: str = "reader"
    plan: str | None = None  # of the catalog: it is about to be named by an entry or a manifest

    @property
    def epochs(self) -> range:
        return range(self.epoch, self.last + 1)


def pin(
    store: Store, epoch: int, expires_us: int | None, *, last: int | None = None, why: str = "reader"
) -> Pin:
    """Keep an epoch, or all from it to `last`; believed only after the floor was looked at again."""
    made = Pin(f"{PREFIX}{epoch:016d}-{os.urandom(8).hex()}", epoch, last or epoch, expires_us, why)
    data = {"epoch": epoch, "last": made.last, "expires_us": expires_us, "why": why}
    store.put_new(made.name, sealed({"format": FORMAT, **data}))
    return made


def pin_plan(store: Store, plan: str, expires_us: int) -> Pin:
    """Keep a plan that nothing names yet; put before the plan, and removed once something names it."""
    made = Pin(f"{PREFIX}{NO_EPOCH:016d}-{os.urandom(8).hex()}", NO_EPOCH, NO_EPOCH, expires_us, "plan", plan)
    data = {"epoch": NO_EPOCH, "last": NO_EPOCH, "expires_us": expires_us, "why": made.why, "plan": plan}
    store.put_new(made.name, sealed({"format": FORMAT, **data}))
    return made


def unpin(store: Store, made: Pin) -> None:
    store.delete(made.name)


def pins(store: Store) -> list[Pin]:
    found = []
    for name in store.list(PREFIX):
        try:
            raw = store.get(name)
        except MissingError:  # removed by its owner between the listing and the read
            continue
        found.append(_parse(name, raw))
    return found


def _parse(name: str, raw: bytes) -> Pin:
    """A pin, verified: one that cannot be read might keep anything, so nothing is collected past it."""
    try:
        data = unsealed(raw)
        return Pin(name, data["epoch"], data["last"], data["expires_us"], data["why"], data.get("plan"))
    except (ValueError, KeyError, TypeError) as broken:
        raise DamagedPinError(
            f"pin {name} cannot be read",
            detail=f"{len(raw)} bytes, {broken}",
            hint="nothing is collected while it is there; delete it if no reader or fork uses its epoch",
        ) from broken
