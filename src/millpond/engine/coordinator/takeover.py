"""Takes a pond over, or creates it.

Law 2: a takeover is a commit with token + 1, after which an older coordinator loses every put.  A process
that loses this race reads the head again, a bounded number of times.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.engine.coordinator.planned_commit import Next, PlannedCommit
from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.program_changes import (
    CHANGED_MEANWHILE,
    ProgramChanges,
    backfill_refused,
    backfill_runs,
)
from millpond.engine.coordinator.protocol import Halt, HeadRead, ReadHead, StateRewrite
from millpond.errors import ConflictError
from millpond.state.manifest.manifest import Manifest, RunId
from millpond.state.plan_file import is_same_plan
from millpond.state.tables.live_runs import LiveRuns

NO_POND = ""  # `based_on` of a process that found no pond: another one may create it first


class Takeover:
    def __init__(
        self,
        state: PondState,
        changes: ProgramChanges,
        *,
        pond: str,
        parallelism: int | None,
        cores: int | None = None,
        rewrite: StateRewrite | None,
        based_on: str | None,
    ) -> None:
        self.owner = False  # may this process commit epochs, as far as it knows?
        self._state = state
        self._changes = changes
        self._pond = pond
        self._parallelism = parallelism  # chosen by the user
        self._cores = cores
        self._rewrite = rewrite
        self._based_on = based_on
        self._races_lost = 0

    def on_head(self, event: HeadRead) -> Next:
        """Plan epoch 0 of a new pond, or the commit that takes over an existing one."""
        if event.manifest is None:
            return self._create()
        state, head = self._state, event.manifest
        state.committed = head
        state.live = LiveRuns(event.runs)
        state.cursors = dict(head.cursors)
        known = head.catalog == self._based_on or is_same_plan(head.catalog, state.program.catalog)
        if self._based_on is not None and not known:
            return _conflict(
                "the program of the pond changed while it was being taken over", head, "open the pond again"
            )
        return self._take_over(head)

    def _create(self) -> Next:
        state = self._state
        state.token = 1
        first = Manifest(
            pond=self._pond,
            epoch=0,
            token=1,
            nonce=state.new_id(),
            now_us=state.now_us,
            kind="create",
            catalog=state.program.catalog,
            parallelism=self._parallelism or self._cores or 1,
            parallelism_fixed=self._parallelism is not None,
        )
        if state.program.constant:  # law 1 holds for epoch 0, too
            return self._changes.create(first)
        return PlannedCommit(first)

    def _take_over(self, head: Manifest) -> Next:
        state = self._state
        state.token = head.token + 1
        child = replace(
            state.child("takeover", state.time_without_steps(max(state.now_us, head.now_us))),
            catalog=state.program.catalog,
            parallelism=self._parallelism or self._found(head),
            parallelism_fixed=head.parallelism_fixed or self._parallelism is not None,
        )
        rewrite = self._rewrite
        ended: tuple[RunId, ...] = ()
        if head.backfill is not None and (rewrite is not None or self._changes.opening is not None):
            ended = backfill_runs(state)
            child = replace(child, backfill=None, metrics=backfill_refused(head.backfill, CHANGED_MEANWHILE))
        if rewrite is None:
            return PlannedCommit(child, (), ended)
        if rewrite.base != head.nonce:
            return _conflict(
                "the pond went on while its state was written anew",
                head,
                "stop the process that runs it, and try again",
            )
        child = replace(child, metrics={**child.metrics, "rewrote": list(rewrite.tables)})
        return PlannedCommit(child, rewrite.added, (*rewrite.removed, *ended))

    def _found(self, head: Manifest) -> int:
        """The parallelism if the user chose none now: the one chosen before, or the cores that there are."""
        return head.parallelism if head.parallelism_fixed else self._cores or head.parallelism

    def on_won(self) -> None:
        self.owner = True

    def on_lost(self, winner: Manifest) -> ReadHead | Halt:
        """Handle that another process committed the epoch that we wanted to commit."""
        if not self.owner:
            self._races_lost += 1
            if self._races_lost < self._state.policy.storage_tries:
                return ReadHead()
        return Halt(
            ConflictError(
                f"another coordinator committed epoch {winner.epoch}",
                detail=f"its token is {winner.token}, ours is {self._state.token}",
                hint="only one process may write a pond; stop one of them, or open with standby=True",
                epoch=winner.epoch,
            )
        )


def _conflict(message: str, head: Manifest, hint: str) -> Halt:
    detail = f"its newest epoch is {head.epoch} now; nothing was changed"
    return Halt(ConflictError(message, detail=detail, hint=hint, epoch=head.epoch))
