"""Rolls a pond back: a forward commit that names the files and the program of an older epoch."""

from __future__ import annotations

from dataclasses import replace

from millpond.engine.coordinator.planned_commit import PlannedCommit
from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.program_changes import CHANGED_MEANWHILE, backfill_refused
from millpond.engine.coordinator.protocol import HeadRead, ProgramSummary
from millpond.errors import InternalError
from millpond.state.manifest.manifest import Manifest, run_id


def roll_back(
    state: PondState, target: HeadRead, child: Manifest, program: ProgramSummary | None
) -> PlannedCommit:
    """The commit that restores `target`; `program` is that of the target, if it differs from the head's.

    The inbox keeps its position, or the rollback would execute itself again.  A backfill that was running at
    the target is not resumed.
    """
    old, head = target.manifest, state.head
    if old is None:
        raise InternalError("a rollback has no target")
    hidden = () if old.backfill is None else old.backfill.tables
    restored = {run_id(r): r for r in target.runs if r.table not in hidden}
    child = replace(
        child,
        kind="rollback",
        restores=old.epoch,
        backfill=None,
        metrics={} if head.backfill is None else backfill_refused(head.backfill, CHANGED_MEANWHILE),
        positions={**old.positions, "inbox": child.positions["inbox"]},
        watermarks=old.watermarks,
        counts=old.counts,
        cleared=old.cleared,
        shedding=old.shedding,
        catalog=child.catalog if program is None else program.catalog,
    )
    added = tuple(r for i, r in restored.items() if i not in state.live)
    removed = tuple(i for i in state.live if i not in restored)
    return PlannedCommit(child, added, removed, program)
