"""A commit as data: a machine plans it, others join it, and `Commits` writes it."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.engine.coordinator.protocol import Instruction, ProgramSummary
from millpond.state.manifest.manifest import Manifest, RunId
from millpond.state.runs.run_ref import RunRef


@dataclass(frozen=True)
class PlannedCommit:
    manifest: Manifest  # the child of the head; `Commits` completes its listing of runs
    added: tuple[RunRef, ...] = ()
    removed: tuple[RunId, ...] = ()
    program: ProgramSummary | None = None  # the program from this commit on, if it differs from the head's


Next = PlannedCommit | Instruction  # what a machine of the chain requests next: exactly one thing
