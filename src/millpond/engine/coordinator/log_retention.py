"""Retention of error rows and late rows: drops their oldest buckets with a commit.

Such a table is a log in buckets by the time of the epochs that wrote them (`state.retention`).  Late rows
that the backfill of a new view must leave out stay in the listing, hidden from readers: they are rows of a
table that the pond stores anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from millpond.engine.coordinator.planned_commit import PlannedCommit
from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.pond_state import PondState
from millpond.state.manifest.manifest import Manifest, run_id
from millpond.state.retention import BUCKETS, ERRORS, LATE, Retention
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.live_runs import TableBucket

BEFORE_ALL_BUCKETS = -(2**62)


class LogRetention:
    def __init__(self, state: PondState) -> None:
        self._state = state
        self._check_all_at_us = 0

    def join(self, planned: PlannedCommit) -> PlannedCommit:
        """The commit, without buckets that are too old or exceed the limit."""
        expired = self._expired(planned.manifest, planned.added)
        if not expired:
            return planned
        child, ended = without_buckets(self._state, planned.manifest, expired)
        places = {(r.table, r.bucket) for r in ended}
        gone = set(planned.removed)
        return replace(
            planned,
            manifest=child,
            added=tuple(r for r in planned.added if (r.table, r.bucket) not in places),
            removed=(*planned.removed, *(i for i in map(run_id, ended) if i not in gone)),
        )

    def _expired(self, child: Manifest, added: Iterable[RunRef]) -> set[TableBucket]:
        """The buckets that retention drops with a commit.

        Every commit checks the tables that received rows, and from time to time all tables.
        """
        state = self._state
        policy, late = state.policy, state.program.late
        tables = {r.table for r in added if r.table == ERRORS or r.table in late}
        if child.now_us >= self._check_all_at_us:
            tables = {ERRORS, *late}
            self._check_all_at_us = child.now_us + min(policy.errors.age_us, policy.late.age_us) // BUCKETS
        expired: set[TableBucket] = set()
        for table in tables:
            rows = visible_rows(state, child, table)
            for ref in added:
                if ref.table == table:
                    rows[ref.bucket] = rows.get(ref.bucket, 0) + ref.rows
            expired |= {(table, bucket) for bucket in _retention(policy, table).expired(rows, child.now_us)}
        return expired


def open_buckets(state: PondState) -> dict[str, int]:
    """By table, the bucket into which the next epoch writes its error rows and late rows."""
    head = state.head
    buckets = {}
    for table in (ERRORS, *state.program.late):
        rows = visible_rows(state, head, table)
        bucket = _retention(state.policy, table).open_bucket(rows, state.now_us)
        buckets[table] = max(bucket, head.cleared.get(table, bucket))
    return buckets


def visible_rows(state: PondState, manifest: Manifest, table: str) -> dict[int | None, int]:
    """The rows of a log by bucket, without those that were cleared."""
    rows, limit = state.live.rows_by_bucket(table), manifest.cleared.get(table)
    return rows if limit is None else {b: n for b, n in rows.items() if b is not None and b >= limit}


def without_buckets(
    state: PondState, child: Manifest, places: Iterable[TableBucket]
) -> tuple[Manifest, list[RunRef]]:
    """The child without some buckets of error rows and late rows, and the runs that this removes."""
    ended: list[RunRef] = []
    cleared, counts = dict(child.cleared), dict(child.counts)
    for table, bucket in places:
        if table in state.program.late_needed:
            limit = BEFORE_ALL_BUCKETS if bucket is None else bucket + 1
            cleared[table] = max(limit, cleared.get(table, limit))
            continue
        for ref in state.live.at((table, bucket)):
            ended.append(ref)
            if table != ERRORS:  # a backfill must know that these rows are missing
                name = f"late_dropped/{table.removesuffix(LATE)}"
                counts[name] = counts.get(name, 0) + ref.rows
    return replace(child, cleared=cleared, counts=counts), ended


def late_tables(state: PondState, step: Any) -> frozenset[str] | None:
    """The tables of late rows of one step, or of all steps if None; None if the step has no such table."""
    if step is None:
        return state.program.late
    table = f"{step}{LATE}"
    return frozenset({table}) if table in state.program.late else None


def _retention(policy: Policy, table: str) -> Retention:
    return policy.errors if table == ERRORS else policy.late
