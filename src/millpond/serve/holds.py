"""Holds: the pins of one reading process, used again while they are fresh.

A pin is written once per epoch that is read, not once per read, so looking up
a key costs no write.  The newest epoch stays held between reads; others are
let go when their last reader is done.

Where nothing can be written, as on a read-only mount or a full disk, an epoch is
read without a pin: it is only not kept from being collected.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from millpond.clock import Clock
from millpond.errors import UnavailableError
from millpond.state.pins import Pin, pin, unpin
from millpond.state.snapshot import Snapshot
from millpond.state.store import NotWritableError, Store


@dataclass
class Hold:
    pin: Pin | None  # None: nothing can be written here
    snapshot: Snapshot
    renew_us: int
    uses: int = 0
    old_pins: list[Pin] = field(default_factory=list)


class Holds:
    def __init__(self, store: Store, clock: Clock, hold_us: int) -> None:
        self._store = store
        self._clock = clock
        self._hold_us = hold_us
        self._lock = threading.Lock()
        self._held: dict[int, Hold] = {}

    def take(self, epoch: int, open_kept: Callable[[int], Snapshot | None]) -> Snapshot | None:
        """A snapshot of an epoch that stays until `give_back`; None when the epoch is no longer kept.

        `open_kept` is asked after the pin was written: that order is what makes it safe.
        """
        now_us = self._clock.now_us()
        with self._lock:
            hold = self._held.get(epoch)
            if hold is not None and now_us < hold.renew_us:
                hold.uses += 1
                return hold.snapshot
        made = try_pin(self._store, epoch, now_us + self._hold_us)
        try:
            snapshot = open_kept(epoch)
        except BaseException:
            let_go(self._store, made)
            raise
        if snapshot is None:
            let_go(self._store, made)
            return None
        with self._lock:
            before = self._held.get(epoch)
            if before is None:
                before = self._held[epoch] = Hold(made, snapshot, now_us + self._hold_us // 2)
            else:  # renewed, or pinned by two threads at once: the older pins go with the hold
                before.old_pins += [] if before.pin is None else [before.pin]
                before.pin, before.renew_us = made, now_us + self._hold_us // 2
            before.uses += 1
            return before.snapshot

    def has(self, epoch: int) -> bool:
        """Is an epoch kept by a pin that is far from running out?"""
        with self._lock:
            hold = self._held.get(epoch)
            return hold is not None and hold.pin is not None and self._clock.now_us() < hold.renew_us

    def give_back(self, epoch: int) -> None:
        with self._lock:
            hold = self._held.get(epoch)
            if hold is None:  # everything was let go while somebody still read
                return
            hold.uses -= 1
            newest = max(self._held)
            over = [e for e, h in self._held.items() if h.uses == 0 and e != newest]
            holds = [self._held.pop(e) for e in over]
        self._release(holds)

    def close(self) -> None:
        with self._lock:
            holds = list(self._held.values())
            self._held = {}
        self._release(holds)

    def _release(self, holds: list[Hold]) -> None:
        for hold in holds:
            for made in (hold.pin, *hold.old_pins):
                let_go(self._store, made)


def try_pin(store: Store, epoch: int, expires_us: int, *, last: int | None = None) -> Pin | None:
    """Pin epochs for a reader; None where nothing can be written."""
    try:
        return pin(store, epoch, expires_us, last=last)
    except NotWritableError:
        return None


def let_go(store: Store, made: Pin | None) -> None:
    """Remove the pin of a reader; one that cannot be removed runs out by itself."""
    if made is not None:
        with contextlib.suppress(UnavailableError):
            unpin(store, made)
