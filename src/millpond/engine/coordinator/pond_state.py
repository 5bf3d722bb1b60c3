"""The state that the machines of a coordinator share: head, live runs, token, cursors and clock.

`Takeover` adopts the head of an existing pond, `Commits` advances it, `EpochLoop` advances the clock and
`SinkDeliveries` the cursors and what deliveries still read.  All other machines only read this state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.protocol import ProgramSummary
from millpond.errors import InternalError
from millpond.state.manifest.manifest import PLACED, Kind, Manifest
from millpond.state.tables.live_runs import LiveRuns


@dataclass
class PondState:
    policy: Policy
    program: ProgramSummary  # of the head
    new_id: Callable[[], str]
    now_us: int  # of the last poll
    uptime_us: int = (
        0  # of this process; it continues when the clock is set back, while `now_us` stands still
    )
    polled_us: int | None = None  # what the clock said at the last poll
    committed: Manifest | None = None  # the head; None until a pond is created or found
    live: LiveRuns = field(default_factory=LiveRuns)
    token: int = 0
    cursors: dict[str, int] = field(default_factory=dict)  # by sink: the last epoch that was delivered
    # By sink that gets epochs at most once: the epoch after which its delivery reads; the cursor is past it.
    reads_after: dict[str, int] = field(default_factory=dict)

    @property
    def head(self) -> Manifest:
        if self.committed is None:
            raise InternalError("the coordinator has no head yet")
        return self.committed

    @property
    def attached_sinks(self) -> tuple[str, ...]:
        """The sinks that receive changes."""
        detached = () if self.committed is None else self.committed.detached
        return tuple(sink for sink in self.program.sinks if sink not in detached)

    def on_time(self, polled_us: int) -> None:
        """Note what the clock says; time never falls (law 3)."""
        if self.polled_us is not None:
            self.uptime_us += max(0, polled_us - self.polled_us)
        self.polled_us = polled_us
        self.now_us = max(polled_us, self.head.now_us)

    def child(self, kind: Kind, now_us: int) -> Manifest:
        """The manifest that follows the head, without changes yet."""
        head = self.head
        return replace(
            head,
            epoch=head.epoch + 1,
            token=self.token,
            nonce=self.new_id(),
            parent_nonce=head.nonce,
            kind=kind,
            now_us=now_us,
            admitted={},
            arrivals={},
            metrics={PLACED: head.metrics[PLACED]} if PLACED in head.metrics else {},
            restores=None,
            cursors=dict(self.cursors),
            floor=self.floor(self.policy.retain_epochs),
        )

    def floor(self, retain_epochs: int) -> int:
        """The oldest epoch that must stay readable; never falls, and waits for slow sinks and backfills."""
        head = self.head
        wanted = head.epoch + 1 - retain_epochs
        for sink in self.attached_sinks:
            wanted = min(wanted, self.reads_after.get(sink, self.cursors.get(sink, 0)))
        if head.backfill is not None:
            wanted = min(wanted, head.backfill.oldest)
        return max(head.floor, wanted)

    def due(self, now_us: int) -> frozenset[str]:
        """The tables whose earliest bucket is due by the clock."""
        earliest = ((table, wake, self.live.earliest(table)) for table, wake in self.program.wakes.items())
        return frozenset(t for t, wake, bucket in earliest if bucket is not None and wake.due(bucket, now_us))

    def time_without_steps(self, now_us: int) -> int:
        """The time of a commit that runs no step: that of the head while a table is due, else now.

        Otherwise views would show rows that are not valid at the time of their epoch (law 1).
        """
        return self.head.now_us if self.due(now_us) else now_us
