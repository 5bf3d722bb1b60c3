"""Runs all levels of an epoch in one task: rows are passed from level to level in memory.

Law: the result is the same as with frames between tasks (law 3).  Sender and receiver are one process, and
each level ends before the next begins, so no frame can be lost, duplicated or damaged, and none is made.
With `in_parts` there are several such tasks, each with a part of the plan and all rows that it reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millpond.engine.task import frames
from millpond.engine.task.level import header_senders, written_report
from millpond.engine.task.partitioning import plain
from millpond.engine.task.picked_rows import Picked
from millpond.engine.task.prefetching import prefetch
from millpond.engine.task.spec import EpochSpec
from millpond.engine.task.task_run import TaskRun
from millpond.engine.task.worker import Worker
from millpond.state.manifest.listing import Listing


def run_all_levels(spec: EpochSpec, worker: Worker, task: int = 0) -> list[bytes]:
    """Run all levels; returns the frames at the end of the chain, one report for each level."""
    depth = len(spec.parallelism)
    part = worker.parts(spec.catalog, spec.parallelism[0])[task] if spec.in_parts else None
    own = replace(spec, parallelism=(1,) * depth, splits=(spec.splits[task],), in_parts=False)
    waiting: list[dict[int, list[Any]]] = [{} for _ in range(depth)]  # by level, then by edge
    headers: dict[int, frames.Header] = {}
    reports: list[bytes] = []
    listing: Listing | None = None
    for level in range(depth):
        run = TaskRun(own, level, 0, worker, listing, part, single_task=True)
        listing = run.listing
        if level == 0:
            prefetch(run, range(depth))
        received = {(k, task): headers[k] for k in header_senders(run.levels, level, depth)}
        run.receive_headers(received)
        run.run(waiting[level])
        for edge, _, rows in run.outgoing():
            if not isinstance(rows, Picked):
                rows = plain(rows, rows.column_names)  # receivers read plain text, as after any exchange
            waiting[edge.to_level].setdefault(edge.id, []).append(rows)
        waiting[level] = {}
        # In the form in which every receiver reads it.
        headers[level] = frames.Header.decode(
            memoryview(frames.Header(run.attempt, 0, 0, run.watermarks).encode())
        )
        reports.append(written_report(spec, run, task, received))
    return reports
