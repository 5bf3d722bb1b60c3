"""All levels of an epoch in one task: rows are handed on as they are.

Law: the outcome is that of the same tasks with frames between them (law 3).  Where sender and receiver are
one process, and each level ends before the next begins, no frame can be lost, doubled or torn; none is made.
With `apart` there are several such tasks, each with a part of the plan and all rows that it reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millpond.engine import frames
from millpond.engine.level import hears, whole_report
from millpond.engine.placing import plain
from millpond.engine.spec import EpochSpec
from millpond.engine.task_run import TaskRun
from millpond.engine.worker import Worker
from millpond.state.listing import Listing


def run_alone(spec: EpochSpec, worker: Worker, task: int = 0) -> list[bytes]:
    """The frames at the end of the chain: one report for each level."""
    depth = len(spec.parallelism)
    part = worker.parts(spec.catalog, spec.parallelism[0])[task] if spec.apart else None
    own = replace(spec, parallelism=(1,) * depth, splits=(spec.splits[task],), apart=False)
    waiting: list[dict[int, list[Any]]] = [{} for _ in range(depth)]  # by level, then by edge
    headers: dict[int, frames.Header] = {}
    found: list[bytes] = []
    listing: Listing | None = None
    for level in range(depth):
        run = TaskRun(own, level, 0, worker, listing, part, alone=True)
        listing = run.listing
        heard = {(k, task): headers[k] for k in hears(run.levels, level, depth)}
        run.hear(heard)
        outputs = run.run_nodes(waiting[level])
        for edge, _, rows in run.outgoing(outputs, together=True):
            # Receivers see texts, as behind any exchange (`engine.encoded`).
            waiting[edge.to_level].setdefault(edge.id, []).append(plain(rows, rows.column_names))
        assert run.at_once is not None
        for edge, picked in run.at_once.sent():
            waiting[edge.to_level].setdefault(edge.id, []).append(picked)
        waiting[level] = {}
        # As every receiver would read it.
        headers[level] = frames.Header.decode(
            memoryview(frames.Header(run.attempt, 0, 0, run.watermarks).encode())
        )
        found.append(whole_report(run, task, heard))
    return found
