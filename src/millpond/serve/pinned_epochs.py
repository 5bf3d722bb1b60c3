"""Keeps the pins of one reading process, and reuses them until they are half expired.

A pin is written once per epoch that is read, not once per read, so a lookup writes nothing.  The newest epoch
stays pinned between reads; the pins of others are removed when their last reader is done.

Where nothing can be written, as on a read-only mount or a full disk, an epoch is read without a pin; the
collector may then delete its files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from millpond.clock import Clock
from millpond.state.manifest.pins import Pin, let_go, try_pin
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.store.store import Store


@dataclass
class PinnedEpoch:
    pin: Pin | None  # None: nothing can be written here
    snapshot: Snapshot
    renew_us: int
    uses: int = 0
    old_pins: list[Pin] = field(default_factory=list)


class PinnedEpochs:
    def __init__(self, store: Store, clock: Clock, pin_us: int) -> None:
        self._store = store
        self._clock = clock
        self._pin_us = pin_us
        self._lock = threading.Lock()
        self._held: dict[int, PinnedEpoch] = {}

    def take(self, epoch: int, open_kept: Callable[[int], Snapshot | None]) -> Snapshot | None:
        """A snapshot of an epoch, readable until `give_back`; None if the epoch is no longer retained.

        `open_kept` is called after the pin was written: this order makes it safe.
        """
        now_us = self._clock.now_us()
        with self._lock:
            pinned = self._held.get(epoch)
            if pinned is not None and now_us < pinned.renew_us:
                pinned.uses += 1
                return pinned.snapshot
        made = try_pin(self._store, epoch, now_us + self._pin_us)
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
                before = self._held[epoch] = PinnedEpoch(made, snapshot, now_us + self._pin_us // 2)
            else:  # renewed, or pinned by two threads concurrently: the older pins are removed with it
                before.old_pins += [] if before.pin is None else [before.pin]
                before.pin, before.renew_us = made, now_us + self._pin_us // 2
            before.uses += 1
            return before.snapshot

    def has(self, epoch: int) -> bool:
        """Is an epoch pinned, and is its pin not due for renewal?"""
        with self._lock:
            pinned = self._held.get(epoch)
            return pinned is not None and pinned.pin is not None and self._clock.now_us() < pinned.renew_us

    def give_back(self, epoch: int) -> None:
        with self._lock:
            pinned = self._held.get(epoch)
            if pinned is None:  # closed during a read
                return
            pinned.uses -= 1
            newest = max(self._held)
            unused = [e for e, h in self._held.items() if h.uses == 0 and e != newest]
            released = [self._held.pop(e) for e in unused]
        self._release(released)

    def close(self) -> None:
        with self._lock:
            released = list(self._held.values())
            self._held = {}
        self._release(released)

    def _release(self, released: list[PinnedEpoch]) -> None:
        for pinned in released:
            for made in (pinned.pin, *pinned.old_pins):
                let_go(self._store, made)
