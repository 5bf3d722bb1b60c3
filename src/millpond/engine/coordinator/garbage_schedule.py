"""Decides when garbage is collected, beside the chain: every few epochs, one collection at a time."""

from __future__ import annotations

from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.protocol import Collect, Compact


class GarbageSchedule:
    def __init__(self, state: PondState) -> None:
        self.running = False
        self._state = state
        self._due_at_epoch = 0

    def start(self, merge: Compact | None) -> list[Collect]:
        """A collection, if one is due; it spares the files of the merge that is running."""
        state, head = self._state, self._state.head
        due = head.epoch >= self._due_at_epoch and head.floor > 0
        if not state.policy.collect or not due or self.running:
            return []
        self.running = True
        spare_from = head.epoch if merge is None else min(head.epoch, merge.epoch)
        return [Collect(head, spare_from, state.token)]

    def collect_soon(self) -> None:
        """Collect with the next commit."""
        self._due_at_epoch = 0

    def on_collected(self) -> None:
        self.running = False
        self._due_at_epoch = self._state.head.epoch + self._state.policy.collect_every
