"""Tells whether another process holds the lease, without waiting for a renewal each time it is asked.

Law: a holder is taken for alive only within its silence after a renewal that this process has seen, by its
own clock; or where the system says that it runs and its clock, which is the same, says when it renewed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from millpond.control import lease
from millpond.control.lease import Beat
from millpond.state.store.store import Store


class LeaseWatch:
    """Remembers the renewals of others that it has seen."""

    def __init__(
        self,
        store: Store,
        silence_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        alive: Callable[[Store, float], Beat | None] = lease.alive_elsewhere,
    ) -> None:
        self._store = store
        self._silence_s = silence_s
        self._monotonic = monotonic
        self._alive = alive
        self._seen: tuple[Beat, float, float] | None = (
            None  # and when it was made at the latest, and looked at
        )

    def holder(self) -> Beat | None:
        """The lease of another living process; waits for a renewal if none was seen for a while."""
        asked = self._monotonic()
        last, seen = lease.latest(self._store), self._seen
        if last is None or last.over or last.is_ours:
            self._seen = None
            return None
        if seen is not None:
            known, renewed, looked = seen
            if known.number != last.number:
                renewed = looked  # it was renewed after we last looked
            if asked - renewed < last.silence_s(self._silence_s):
                self._seen = last, renewed, asked
                return last
        if _renewed_just_now(last, self._silence_s):
            return last
        found = self._alive(self._store, self._silence_s)
        now = self._monotonic()
        self._seen = None if found is None else (found, now, now)
        return found


def _renewed_just_now(last: Beat, silence_s: float) -> bool:
    """Is the holder a process of this machine, whose clock is ours, that renewed within its silence?"""
    if not last.is_on_this_machine or last.at_us is None:
        return False
    return 0 <= time.time_ns() // 1000 - last.at_us < last.silence_s(silence_s) * 1_000_000
