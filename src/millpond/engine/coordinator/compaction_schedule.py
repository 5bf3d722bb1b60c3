"""Picks merges of runs, one at a time beside the chain; a finished merge joins the next commit.

Law: a merge joins only if all its inputs are still live, so it can be dropped at any moment.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.engine.coordinator.planned_commit import PlannedCommit
from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.protocol import Compact, Compacted, Halt
from millpond.errors import DataError, MillpondError
from millpond.state.manifest.manifest import run_id
from millpond.state.runs.compaction import batch_with_first, plan_merges


class CompactionSchedule:
    def __init__(self, state: PondState) -> None:
        self.running: Compact | None = None
        self._state = state
        self._done: list[Compacted] = []  # merges that are not committed yet
        self._failures = 0  # in a row
        self._everything = False  # merge until every table is one run, regardless of the policy

    @property
    def waits_for_commit(self) -> bool:
        return bool(self._done)

    @property
    def busy(self) -> bool:
        return self._everything or self.running is not None or bool(self._done)

    def compact_everything(self) -> None:
        """Merge until every table is one run, regardless of the policy."""
        self._everything = True

    def start(self, backfilled: frozenset[str]) -> list[Compact]:
        """The next merge, if one is worthwhile; `backfilled` are tables that no program names yet."""
        state = self._state
        if not (state.policy.compact or self._everything) or self.running is not None or self._done:
            return []
        places = state.live.table_buckets() if self._everything else sorted(state.live.touched, key=str)
        mergeable = state.program.tables
        known = [p for p in places if mergeable is None or p[0] in mergeable or p[0] in backfilled]
        jobs = plan_merges(
            (r for place in known for r in state.live.at(place)),
            fan_in=state.policy.fan_in,
            unit_bytes=state.policy.unit_bytes,
            everything=self._everything,
        )
        state.live.touched = {(job.table, job.bucket) for job in jobs}
        self._everything = self._everything and bool(jobs)
        if not jobs:
            return []
        self.running = Compact(jobs[0], state.token, state.head.epoch, batch_with_first(jobs))
        return [self.running]

    def on_compacted(self, event: Compacted) -> None:
        self.running = None
        self._failures = 0
        self._done.append(event)

    def on_failed(self, error: MillpondError) -> list[Halt]:
        self.running = None
        self._failures += 1
        if isinstance(error, DataError) or self._failures >= self._state.policy.tries:
            return [Halt(error)]
        return []

    def join(self, planned: PlannedCommit) -> PlannedCommit:
        """The commit, with the merges whose inputs are all still live."""
        if not self._done:
            return planned
        added, removed, gone = list(planned.added), list(planned.removed), set(planned.removed)
        for job, merged in (
            (j, runs) for done in self._done for j, runs in ((done.job, done.added), *done.also)
        ):
            inputs = [run_id(r) for r in job.refs]
            if all(i in self._state.live and i not in gone for i in inputs):
                added.extend(merged)
                removed.extend(inputs)
                gone.update(inputs)
        self._done = []
        return replace(planned, added=tuple(added), removed=tuple(removed))

    def forget(self) -> None:
        """Drop merges that are not committed: they belong to epochs that a rollback discards."""
        self._done = []
