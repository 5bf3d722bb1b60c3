"""Holds: the pins of one reading process, used again while they are fresh.

A pin is written once per epoch that is read, not once per read, so looking up
a key costs no write.  The newest epoch stays held between reads; others are
let go when their last reader is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from millpond.clock import Clock
from millpond.state.pins import Pin, pin, unpin
from millpond.state.snapshot import Snapshot
from millpond.state.store import Store


@dataclass
class Hold:
    pin: Pin
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
        made = pin(self._store, epoch, now_us + self._hold_us)
        try:
            snapshot = open_kept(epoch)
        except BaseException:
            unpin(self._store, made)
            raise
        if snapshot is None:
            unpin(self._store, made)
            return None
        with self._lock:
            before = self._held.get(epoch)
            if before is None:
                before = self._held[epoch] = Hold(made, snapshot, now_us + self._hold_us // 2)
            else:  # renewed, or pinned by two threads at once: the older pins go with the hold
                before.old_pins.append(before.pin)
                before.pin, before.renew_us = made, now_us + self._hold_us // 2
            before.uses += 1
            return before.snapshot

    def has(self, epoch: int) -> bool:
        """Is an epoch kept by a pin that is far from running out?"""
        with self._lock:
            hold = self._held.get(epoch)
            return hold is not None and self._clock.now_us() < hold.renew_us

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
                unpin(self._store, made)
