"""Sends the rows of one step over one edge, each to the task that owns it.

Law: on any path, a task receives every row of its hash range once, with its hash and its weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, WEIGHT
from millpond.engine.task.failing_step import naming_step
from millpond.engine.task.partitioning import cut_by_owner, prepared, with_hash
from millpond.engine.task.picked_rows import Picked
from millpond.plan.levels import Edge

if TYPE_CHECKING:
    from millpond.engine.task.task_run import TaskRun


@dataclass(frozen=True)
class Send:
    edge: Edge
    unprepared: bool = False  # the reader accepts unprepared rows, or positions of rows (one process)

    def run(self, task: TaskRun) -> Iterator[tuple[int, pa.Table | Picked]]:
        """Yield (task of the receiving level, its rows); rows are computed lazily."""
        edge = self.edge
        if edge.to_level >= len(task.spec.parallelism):
            return
        positions = task.positions.get(edge.producer)
        if positions is not None and positions.num_rows:
            yield 0, positions
        rows = task.outputs.get(edge.producer)
        if rows is not None:
            for target, part in self._route(task, rows):
                if part.num_rows:
                    yield target, part

    def _route(self, task: TaskRun, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        edge = self.edge
        targets = task.spec.parallelism[edge.to_level]
        reduced = edge.producer in task.reduced
        if not reduced:
            rows = rows.select([c for c in (*edge.columns, WEIGHT, HASH) if c in rows.column_names])
        if edge.kind == "broadcast":
            yield from ((target, rows) for target in range(targets))
            return
        if edge.kind == "forward":
            yield task.task % targets, rows
            return
        if self.unprepared:
            yield 0, rows
            return
        if edge.prepared_by:
            step, index = edge.consumers[0]
            with naming_step(step, task.spec.epoch):
                rows = prepared(rows, task.plan.nodes[step], index, reduced)
        elif HASH not in rows.column_names:
            rows = with_hash(rows, edge.key)
        keys = [rows.column(k) for k in edge.key if k in rows.column_names]
        # Recomputing the hash of one integer is cheaper than sending it.
        bare = not task.single_task and len(keys) == len(edge.key) and hashing.is_injective(keys)
        for target, part in cut_by_owner(rows, targets):
            yield target, part.drop_columns([HASH]) if bare else part

    def text(self) -> str:
        edge = self.edge
        readers = ", ".join(step for step, _ in edge.consumers)
        how = " unprepared" if self.unprepared else " prepared" if edge.prepared_by else ""
        return f"send {edge.producer} to {readers} of level {edge.to_level} by {edge.kind}{how}"
