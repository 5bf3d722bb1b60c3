"""Changes the program between two epochs: directly, or by a backfill in chunks while epochs continue.

Law 2: one commit of kind `change` names the new catalog, contains the state of the new steps and removes that
of the old ones; nothing of a backfill is visible before it.  A chunk of a backfill joins the next commit of
any kind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from millpond.engine.change.backfill_schedule import AT_ONCE_ROWS, CHUNK_ROWS, BackfillSchedule
from millpond.engine.coordinator.epoch_loop import added_up
from millpond.engine.coordinator.planned_commit import Next, PlannedCommit
from millpond.engine.coordinator.policy import is_transient
from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.protocol import (
    BackfillChunkDone,
    ChangePlan,
    Halt,
    PlanChanged,
    RunBackfillChunk,
)
from millpond.engine.coordinator.sink_deliveries import SinkDeliveries
from millpond.errors import InternalError, MillpondError
from millpond.state.manifest.backfill_progress import BackfillProgress
from millpond.state.manifest.manifest import Manifest, RunId, run_id
from millpond.state.store.store import ReadOnlyError
from millpond.state.tables.live_runs import outside_dropped_buckets

CHANGED_MEANWHILE = "the program was changed by somebody else meanwhile"


@dataclass(frozen=True)
class _Requested:
    instruction: ChangePlan | RunBackfillChunk
    child: Manifest  # the manifest that will contain the change, or the reason for its refusal
    by: str


class ProgramChanges:
    def __init__(self, state: PondState, deliveries: SinkDeliveries, opening: str | None) -> None:
        self.opening = opening  # the catalog to change to after the takeover; None once that is done
        self._state = state
        self._deliveries = deliveries
        self._requested: _Requested | None = None
        self._tries = 0
        self._schedule = BackfillSchedule()

    @property
    def chunk_waits(self) -> bool:
        """Is there a chunk of a backfill that is not committed yet?"""
        return self._schedule.pending is not None

    @property
    def backfilled_tables(self) -> frozenset[str]:
        """The tables that this process backfills; they may be merged although no program names them yet."""
        return self._schedule.tables

    # -- requests -------------------------------------------------------------

    def create(self, first: Manifest) -> ChangePlan:
        """Compute the rows that the plan of a new pond has before any input."""
        return self._ask(first, first, self._state.program.catalog, "making the pond", begins=True)

    def open(self, catalog: str) -> ChangePlan:
        """Change to the program with which the pond was opened."""
        head = self._state.head
        return self._ask(head, self._state.child("change", head.now_us), catalog, "opening the pond")

    def begin(self, catalog: str, child: Manifest, entry: int) -> ChangePlan:
        """Execute a command of the inbox."""
        return self._ask(self._state.head, child, catalog, f"inbox {entry}", entry)

    def _ask(
        self,
        base: Manifest,
        child: Manifest,
        catalog: str,
        by: str,
        entry: int | None = None,
        *,
        begins: bool = False,
    ) -> ChangePlan:
        rows = min(self._state.policy.bounds.rows_max, CHUNK_ROWS)
        ask = ChangePlan(
            base,
            child.epoch,
            self._state.token,
            child.now_us,
            base.parallelism,
            catalog,
            rows,
            entry,
            min(rows, AT_ONCE_ROWS),
            begins,
        )
        self._request(ask, child, by)
        return ask

    def next_chunk(self, progress: BackfillProgress, *, idle: bool) -> RunBackfillChunk:
        state, head = self._state, self._state.head
        now_us = state.time_without_steps(max(state.now_us, head.now_us))
        rows = self._schedule.rows(state.policy.bounds, idle=idle)
        ask = RunBackfillChunk(head, head.epoch + 1, state.token, now_us, head.parallelism, progress, rows)
        self._request(ask, state.child("epoch", now_us), f"inbox {progress.entry}")
        return ask

    def _request(self, ask: ChangePlan | RunBackfillChunk, child: Manifest, by: str) -> None:
        self._requested = _Requested(ask, child, by)
        self._tries = 0

    def _answered(self) -> _Requested:
        requested, self._requested = self._requested, None
        if requested is None:
            raise InternalError("the answer to a change that was not requested")
        return requested

    # -- answers --------------------------------------------------------------

    def on_backfill_begun(self, progress: BackfillProgress) -> PlannedCommit:
        """Start a long backfill: manifests carry its progress until it is done, and the inbox moves on."""
        return PlannedCommit(replace(self._answered().child, backfill=progress))

    def on_chunk(self, event: BackfillChunkDone) -> None:
        self._answered()
        self._schedule.on_chunk(event)

    def on_changed(self, event: PlanChanged) -> PlannedCommit:
        """Plan one commit: the new program, the state of new steps, and the removal of old ones (law 2)."""
        child = self._answered().child
        added = outside_dropped_buckets(event.runs, event.drops)
        if child.kind == "create":
            child = replace(
                child, positions=event.positions, watermarks=event.watermarks, counts=event.counts
            )
            return PlannedCommit(child, added)
        self.opening = None
        live, gone = self._state.live, event.steps_gone
        before = frozenset(self._state.program.sinks)
        self._deliveries.change_sinks(frozenset(event.program.sinks), child)
        counts = {n: c for n, c in child.counts.items() if n.partition("/")[2] not in gone}
        child = replace(
            child,
            kind="change",
            backfill=None,
            catalog=event.program.catalog,
            positions={**{s: p for s, p in child.positions.items() if s not in gone}, **event.positions},
            watermarks={**{s: w for s, w in child.watermarks.items() if s not in gone}, **event.watermarks},
            cursors=dict(self._state.cursors),
            detached=_detached(child.detached, before, event.program.sinks),
            paused=tuple(s for s in child.paused if s in before and s in event.program.sinks),
            counts=added_up(counts, event.counts),
            metrics=event.metrics,
        )
        gone_runs = {run_id(r): None for r in live.values() if r.table in event.tables_gone}
        removed = (*gone_runs, *(i for i in live.runs_below(event.drops) if i not in gone_runs))
        return PlannedCommit(child, added, removed, event.program)

    def on_failed(self, error: MillpondError, stopped: bool) -> Next:
        """Retry, or commit the reason why the change is refused."""
        requested = self._answered()
        self._tries += not stopped
        if stopped or (is_transient(error) and self._tries < self._state.policy.tries):
            self._requested = requested
            return requested.instruction
        child = requested.child
        if isinstance(error, ReadOnlyError) or self.opening is not None or child.kind == "create":
            return Halt(error)  # there is no other program to run
        text = "; ".join(part for part in (error.message, error.detail) if part)
        metrics = {"refused": f"{requested.by}: change refused: {text}"}
        return PlannedCommit(
            replace(child, backfill=None, metrics=metrics), removed=backfill_runs(self._state)
        )

    # -- commits --------------------------------------------------------------

    def join(self, planned: PlannedCommit) -> PlannedCommit:
        """The commit, with the chunk that waits for one."""
        chunk = self._schedule.take_pending()
        if chunk is None:
            return planned
        return replace(
            planned,
            manifest=replace(planned.manifest, backfill=chunk.progress),
            added=(*planned.added, *outside_dropped_buckets(chunk.runs, chunk.drops)),
            removed=(*planned.removed, *self._state.live.runs_below(chunk.drops)),
        )

    def end_backfill(self) -> None:
        """End the backfill."""
        self._schedule.end()


def backfill_runs(state: PondState) -> tuple[RunId, ...]:
    """The runs of tables that are being backfilled."""
    backfill = state.head.backfill
    tables = () if backfill is None else backfill.tables
    return tuple(run_id(r) for r in state.live.values() if r.table in tables) if tables else ()


def backfill_refused(progress: BackfillProgress, why: str) -> dict[str, str]:
    """The manifest's record of a backfill that ended unfinished."""
    return {"refused": f"inbox {progress.entry}: change refused: {why}"}


def _detached(detached: Mapping[str, int], before: Collection[str], now: Collection[str]) -> dict[str, int]:
    """The detached sinks after a change of the program, each with the last epoch that it received.

    A sink that is created again is attached, even if an older one of its name was detached.  One exception:
    names that a fork inherited and nobody attached (epoch 0) stay detached, so that a script that drops and
    creates sinks does not write to the targets of the parent.
    """
    return {
        name: epoch for name, epoch in detached.items() if name not in now or name in before or epoch == 0
    }
