"""Delivers epochs to sinks, beside the chain: one epoch at a time per sink, in order.

Law 7: a cursor moves only after its epoch was delivered; so after a crash an epoch may be delivered again,
never skipped.  A failed sink is retried after a growing pause, and delays nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.protocol import Deliver, Halt
from millpond.errors import DataError, MillpondError
from millpond.state.manifest.manifest import Manifest


@dataclass(frozen=True)
class FailedSink:
    error: MillpondError
    tries: int
    retry_at_us: int


class SinkDeliveries:
    def __init__(self, state: PondState) -> None:
        self._state = state
        self._delivering: dict[str, int] = {}  # by sink: the epoch that is being delivered
        self._failed: dict[str, FailedSink] = {}
        self._uncommitted = 0  # deliveries since the last commit of cursors

    # -- copies, for other threads, too ---------------------------------------

    @property
    def delivering(self) -> tuple[str, ...]:
        return tuple(sorted(dict(self._delivering)))

    @property
    def failed(self) -> Mapping[str, MillpondError]:
        """Sinks whose last delivery failed, until one succeeds."""
        return {sink: failed.error for sink, failed in dict(self._failed).items()}

    @property
    def behind(self) -> Mapping[str, int]:
        """The sinks that have epochs to receive, and the last epoch that each received."""
        head, cursors = self._state.committed, self._state.cursors
        found = {sink: cursors.get(sink, -1) for sink in self._state.attached_sinks}
        return {s: e for s, e in found.items() if head is not None and e < head.epoch}

    # -- deliveries -----------------------------------------------------------

    def start(self) -> list[Deliver]:
        """A delivery for every sink that is behind and neither busy nor pausing."""
        state, head = self._state, self._state.head
        found = []
        for sink in state.attached_sinks:
            failed = self._failed.get(sink)
            if sink in self._delivering or (failed is not None and state.now_us < failed.retry_at_us):
                continue
            # If the first epochs are gone, a new sink begins with all rows of the oldest retained epoch.
            all_rows = sink not in state.cursors and head.floor > 0
            following = head.floor if all_rows else state.cursors.get(sink, -1) + 1
            if following <= head.epoch:
                self._delivering[sink] = following
                found.append(Deliver(sink, following, all_rows))
        return found

    def on_delivered(self, sink: str, epoch: int) -> list[Deliver]:
        if not self._ended(sink, epoch):
            return []
        self._failed.pop(sink, None)
        self._state.cursors[sink] = epoch
        self._uncommitted += 1
        if epoch >= self._state.head.epoch:
            return []
        self._delivering[sink] = epoch + 1
        return [Deliver(sink, epoch + 1)]

    def on_failed(self, sink: str, epoch: int, error: MillpondError) -> list[Halt]:
        if isinstance(error, DataError):  # the pond's own files are wrong, not the target
            return [Halt(error)]
        if self._ended(sink, epoch):
            policy, before = self._state.policy, self._failed.get(sink)
            tries = 1 if before is None else before.tries + 1
            rest_us = min(policy.sink_rest_us_max, policy.sink_rest_us * 2 ** min(tries - 1, 20))
            self._failed[sink] = FailedSink(error, tries, self._state.now_us + rest_us)
        return []

    def _ended(self, sink: str, epoch: int) -> bool:
        """Is this the awaited delivery?  Not if the sink was dropped or detached meanwhile."""
        if self._delivering.get(sink) != epoch:
            return False
        del self._delivering[sink]
        return sink in self._state.attached_sinks

    def retry(self, sink: str) -> None:
        """Retry a failed sink immediately."""
        self._failed.pop(sink, None)

    # -- commits --------------------------------------------------------------

    @property
    def cursors_due(self) -> bool:
        """Is it time for a commit that only moves cursors?

        Such a commit is one more epoch for a sink that is still behind, so it waits for all sinks, or for
        many deliveries.
        """
        return self._uncommitted >= (self._state.policy.cursor_lag if self._delivering else 1)

    def on_commit(self) -> None:
        self._uncommitted = 0

    def on_won(self, head: Manifest) -> None:
        """Move cursors past an epoch that has nothing to deliver, so that this needs no commit."""
        if not is_empty(head):
            return
        for sink in self._state.attached_sinks:
            if self._state.cursors.get(sink, -1) == head.epoch - 1 and sink not in self._delivering:
                self._state.cursors[sink] = head.epoch

    # -- changes of sinks -----------------------------------------------------

    def attach(self, sink: str, after: int) -> None:
        """Deliver the epochs after this one."""
        self._state.cursors[sink] = after

    def detach(self, sink: str) -> None:
        """Deliver nothing more; the epoch that is being delivered may still arrive."""
        self._delivering.pop(sink, None)
        self._failed.pop(sink, None)

    def change_sinks(self, wanted: frozenset[str], child: Manifest) -> None:
        """Prepare cursors for the sinks of another program, which `child` will commit."""
        state = self._state
        before = frozenset(state.program.sinks)
        # The cursor of a dropped sink is stored as long as a rollback can restore the sink.
        oldest = min([child.floor, *child.savepoints.values()])
        state.cursors = {s: e for s, e in state.cursors.items() if s in before | wanted or e >= oldest}
        for sink in before ^ wanted:
            self.detach(sink)
        for sink in wanted - before:
            state.cursors[sink] = child.epoch - 1


def is_empty(manifest: Manifest) -> bool:
    """Does an epoch change no view?"""
    return manifest.kind not in ("rollback", "change") and not any(r.kind == "delta" for r in manifest.added)
