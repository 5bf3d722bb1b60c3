"""All levels of an epoch that has one task in each: rows are handed on as they are.

Law: the outcome is that of the same tasks with frames between them (law 3).  Where sender and receiver are
one process, and each level ends before the next begins, no frame can be lost, doubled or torn; none is made.
"""

from __future__ import annotations

import pyarrow as pa

from millpond.engine import frames
from millpond.engine.level import TaskRun, hears, whole_report
from millpond.engine.spec import EpochSpec
from millpond.engine.worker import Worker
from millpond.state.listing import Listing


def run_alone(spec: EpochSpec, worker: Worker) -> list[bytes]:
    """The frames at the end of the chain: one report for each level."""
    depth = len(spec.parallelism)
    waiting: list[dict[int, list[pa.Table]]] = [{} for _ in range(depth)]  # by level, then by edge
    headers: dict[tuple[int, int], frames.Header] = {}
    found: list[bytes] = []
    listing: Listing | None = None
    for level in range(depth):
        run = TaskRun(spec, level, 0, worker, listing)
        listing = run.listing
        heard = {(k, 0): headers[k, 0] for k in hears(run.levels, level, depth)}
        run.hear(heard)
        outputs = run.run_nodes(waiting[level])
        for edge, _, rows in run.outgoing(outputs, together=True):
            waiting[edge.to_level].setdefault(edge.id, []).append(rows)
        waiting[level] = {}
        # As every receiver would read it.
        headers[level, 0] = frames.Header.decode(
            memoryview(frames.Header(run.attempt, 0, 0, run.watermarks).encode())
        )
        found.append(whole_report(run, heard))
    return found
