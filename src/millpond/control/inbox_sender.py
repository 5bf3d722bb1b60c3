"""Sends entries to the inbox of a pond, and finds out what became of them; every client sends through this.

Law: an entry is durable and has a number when `append` returns; entries are executed in the order of their
numbers, by the process that runs the pond.
The newest manifest says which entries are executed; the lease says whether a process runs the pond.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from millpond.control import lease
from millpond.state import inbox
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.state.store.store import Store

POLL_S = 0.1


@dataclass(frozen=True)
class Sent:
    number: int  # of the entry in the inbox
    executed: Manifest | None  # the epoch that executed it
    running: bool  # did a pipeline renew its lease?


class InboxSender:
    """Appends to the inbox of a store and remembers the last entry that it appended."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.last = -1  # the highest number that this object appended
        self._executed = 0  # the number of the next entry to execute, as of the newest manifest that was seen

    def append(
        self, kind: str, args: Mapping[str, Any], payload: bytes = b"", *, start: int | None = None
    ) -> int:
        """Add an entry after all others; returns its number.

        `start` is the number of the next entry to execute, if the caller knows it.
        """
        if start is None:
            start = self.next_entry()
        number = inbox.append(self.store, kind, args, payload, start=start)
        self.last = max(self.last, number)
        return number

    def next_entry(self) -> int:
        """The number of the next entry to execute; 0 before the first epoch."""
        found = inbox.next_entry(history.read_head(self.store))
        self._executed = max(self._executed, found)
        return found

    def saw(self, head: Manifest | None) -> None:
        """Remember what a manifest says, so that it need not be read again."""
        self._executed = max(self._executed, inbox.next_entry(head))

    def has_executed(self, number: int) -> bool:
        return self.next_entry() > number

    def require_stored(self, number: int) -> None:
        """Raise DataError if an entry that was appended is neither executed nor stored."""
        if number >= self._executed and not self.has_executed(number) and inbox.is_lost(self.store, number):
            raise inbox.lost(number)

    def send(
        self,
        kind: str,
        args: Mapping[str, Any],
        *,
        wait_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Sent:
        """Append a command and wait until another process has executed it, if one runs the pond."""
        number = self.append(kind, args)
        first = lease.latest(self.store)
        running = False
        until = monotonic() + wait_s
        while True:
            head = history.read_head(self.store)
            if head is not None and inbox.next_entry(head) > number:
                return Sent(number, inbox.executing_epoch(self.store, head, number), True)
            beat = lease.latest(self.store)
            running = running or (beat != first and beat is not None and not beat.released)
            if beat is None or beat.over or monotonic() >= until:
                return Sent(number, None, running)
            sleep(POLL_S)
