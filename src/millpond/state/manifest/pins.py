"""Pins protect the files of an epoch from garbage collection while it is read or forked.

A pin is an immutable object with an epoch and an expiry time; renewing a pin writes another one.  The order
of actions makes it safe: a reader writes its pin, *then* checks that the floor has not passed its epoch; the
collector raises the floor by a commit, *then* reads the pins.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from millpond.errors import DataError, UnavailableError
from millpond.state.checksummed_json import sealed, unsealed
from millpond.state.store.store import MissingError, NotWritableError, Store

PREFIX = "pins/"
NO_EPOCH = 10**15  # the epoch of a pin that protects a plan and no epoch
FORMAT = 2  # the format of a pin; version 1 has neither this number nor a checksum


class DamagedPinError(DataError):
    """A pin cannot be read.  It may protect any epoch, so nothing may be collected while it exists."""


@dataclass(frozen=True)
class Pin:
    name: str
    epoch: int
    last: int  # protects all epochs from `epoch` to `last`
    expires_us: int | None  # None: it does not expire (a fork)
    why: str = "reader"
    plan: str | None = None  # a plan that an entry or a manifest is about to name

    @property
    def epochs(self) -> range:
        return range(self.epoch, self.last + 1)


def pin(
    store: Store, epoch: int, expires_us: int | None, *, last: int | None = None, why: str = "reader"
) -> Pin:
    """Protect an epoch, or all from it to `last`; valid only if the floor is still below it afterwards."""
    made = Pin(f"{PREFIX}{epoch:016d}-{os.urandom(8).hex()}", epoch, last or epoch, expires_us, why)
    data = {"epoch": epoch, "last": made.last, "expires_us": expires_us, "why": why}
    store.put_new(made.name, sealed({"format": FORMAT, **data}))
    return made


def pin_plan(store: Store, plan: str, expires_us: int) -> Pin:
    """Protect a plan that nothing names yet; written before the plan, removed once something names it."""
    made = Pin(f"{PREFIX}{NO_EPOCH:016d}-{os.urandom(8).hex()}", NO_EPOCH, NO_EPOCH, expires_us, "plan", plan)
    data = {"epoch": NO_EPOCH, "last": NO_EPOCH, "expires_us": expires_us, "why": made.why, "plan": plan}
    store.put_new(made.name, sealed({"format": FORMAT, **data}))
    return made


def unpin(store: Store, made: Pin) -> None:
    store.delete(made.name)


def try_pin(
    store: Store, epoch: int, expires_us: int, *, last: int | None = None, why: str = "reader"
) -> Pin | None:
    """Pin epochs for a reader; None where nothing can be written."""
    try:
        return pin(store, epoch, expires_us, last=last, why=why)
    except NotWritableError:
        return None


def let_go(store: Store, made: Pin | None) -> None:
    """Remove the pin of a reader; a pin that cannot be removed expires."""
    if made is not None:
        with contextlib.suppress(UnavailableError):
            unpin(store, made)


def protects(store: Store, made: Pin, now_us: int) -> bool:
    """Does a pin of another process still protect its epochs?

    A process that writes its own pin first, and then finds this true, continues the protection without a gap.
    """
    is_over = made.expires_us is not None and made.expires_us <= now_us
    return not is_over and store.size(made.name) is not None


def pins(store: Store) -> list[Pin]:
    parsed = []
    for name in store.list(PREFIX):
        try:
            raw = store.get(name)
        except MissingError:  # its owner removed it after the listing
            continue
        parsed.append(_parse(name, raw))
    return parsed


def _parse(name: str, raw: bytes) -> Pin:
    """Parse and verify a pin; one that cannot be read may protect anything, so it stops the collection."""
    try:
        data = unsealed(raw)
        return Pin(name, data["epoch"], data["last"], data["expires_us"], data["why"], data.get("plan"))
    except (ValueError, KeyError, TypeError) as broken:
        raise DamagedPinError(
            f"pin {name} cannot be read",
            detail=f"{len(raw)} bytes, {broken}",
            hint="nothing is collected while it is there; delete it if no reader or fork uses its epoch",
        ) from broken
