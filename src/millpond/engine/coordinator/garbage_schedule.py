"""Decides when garbage is collected, beside the chain: every few epochs, one collection at a time."""

from __future__ import annotations

from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.protocol import Collect, Compact


class GarbageSchedule:
    def __init__(self, state: PondState) -> None:
        self.running = False
        self._state = state
        self._due_at_epoch = 0

    def start(self, merge: Compact | None, delivered: int | None = None) -> list[Collect]:
        """A collection, if one is due.

        It spares the files of the merge that is running, and those that deliveries wrote since an epoch.
        """
        state, head = self._state, self._state.head
        due = head.epoch >= self._due_at_epoch and head.floor > 0
        if not state.policy.collect or not due or self.running:
            return []
        self.running = True
        started = [head.epoch, *([] if merge is None else [merge.epoch])]
        spare_from = min(started if delivered is None else [*started, delivered])
        return [Collect(head, spare_from, state.token)]

    def collect_soon(self) -> None:
        """Collect with the next commit."""
        self._due_at_epoch = 0

    def on_collected(self) -> None:
        self.running = False
        self._due_at_epoch = self._state.head.epoch + self._state.policy.collect_every
