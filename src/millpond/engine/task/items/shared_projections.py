"""Computes all projections of the same few rows with one query.

Law: every projection gives the same rows as if it ran alone; if the query fails, each one runs alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond import tuning
from millpond.delta import without_origin
from millpond.engine.task.failing_step import naming_step
from millpond.engine.task.items.apply import Apply
from millpond.kernels.expression_kernel import project_each
from millpond.operators.operator import StepResult

if TYPE_CHECKING:
    from millpond.engine.task.task_run import TaskRun


@dataclass(frozen=True)
class SharedProjections:
    source: str  # the step whose rows they read
    projections: tuple[str, ...]

    @property
    def steps(self) -> tuple[str, ...]:
        return self.projections

    def run(self, task: TaskRun) -> None:
        rows = task.outputs.get(self.source)
        if rows is None:
            return
        started = time.perf_counter_ns()
        with naming_step(self.projections[0], task.spec.epoch):
            projected = None if rows.num_rows > tuning.ONE_CHUNK_ROWS_MAX else self._project(task, rows)
        task.took(self.projections[0], started)
        if projected is None:
            for step in self.projections:
                Apply(step).run(task)
            return
        for step, out in zip(self.projections, projected, strict=True):
            started = time.perf_counter_ns()
            with naming_step(step, task.spec.epoch):
                node, result = task.plan.nodes[step], StepResult(out)
                task.check(node, result)
                task.finish(node, result, "shared_projections")
            task.took(step, started)

    def _project(self, task: TaskRun, rows: pa.Table) -> list[pa.Table] | None:
        read = [task.levels.inputs[step, 0].intersection(rows.column_names) for step in self.projections]
        bounds = [
            [(name, e) for name, e in task.plan.nodes[step].binding.extra if columns.issuperset(e.needs)]
            for step, columns in zip(self.projections, read, strict=True)
        ]
        return project_each(without_origin(rows), bounds)

    def text(self) -> str:
        return f"shared projections {', '.join(self.projections)} of {self.source}"
