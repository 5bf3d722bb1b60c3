"""Computes aggregates of the same shape with one call, in the only task of an epoch.

Law: every step gets the same state as if it ran alone (law 3).  With `checks` each one also runs alone, and
the results are compared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond import tuning
from millpond.engine.task import checks, similar_aggregates
from millpond.engine.task.failing_step import naming_step
from millpond.engine.task.partitioning import concat, one_chunk_if_few, prepared
from millpond.engine.task.picked_rows import Picked
from millpond.engine.task.similar_aggregates import Member
from millpond.operators.operator import StepResult
from millpond.plan.nodes import Node

if TYPE_CHECKING:
    from millpond.engine.task.task_run import TaskRun


@dataclass(frozen=True)
class BatchedAggregates:
    """Inputs arrive as the sender had them: unprepared rows, or positions of rows."""

    steps: tuple[str, ...]

    def run(self, task: TaskRun) -> None:
        started = time.perf_counter_ns()
        live = [task.plan.nodes[step] for step in self.steps if (step, 0) in task.arrived]
        inputs = [_received(task.arrived[node.step, 0]) for node in live]
        rows = sum(rows_in.num_rows for rows_in in inputs)
        stack = None
        if len(live) > 1 and rows <= tuning.BATCHED_AGGREGATES_ROWS_MAX:
            with naming_step(live[0].step, task.spec.epoch):
                members = [m for n in live if (m := Member.of(n.operator, n.binding)) is not None]
                runs = [task.listing.runs(node.binding.tables[0].name) for node in live]
                stack = similar_aggregates.apply(members, inputs, runs, task.worker.open_file)
        if stack is not None:
            task.writer.add_stack(stack.members, stack.columns)
        if stack is None or task.spec.checks:
            results = [_by_itself(task, node, rows_in) for node, rows_in in zip(live, inputs, strict=True)]
            if stack is None:
                for node, result in zip(live, results, strict=True):
                    task.keep(node, result)
            else:
                for node, result, from_stack in zip(live, results, stack.each(), strict=True):
                    checks.check_batched(node, result, from_stack, task.context(node))
        for node in live:
            task.note("apply" if stack is None else "batched_aggregates", node.step, 0)
            task.took(node.step, started, share=len(live))

    def text(self) -> str:
        return f"batched aggregates {', '.join(self.steps)}"


def _by_itself(task: TaskRun, node: Node, received: pa.Table | Picked) -> StepResult:
    with naming_step(node.step, task.spec.epoch):
        rows = received.table() if isinstance(received, Picked) else received
        return task.result(node, {(node.step, 0): [prepared(rows, node, 0)]})


def _received(inputs: Sequence[pa.Table | Picked]) -> pa.Table | Picked:
    return inputs[0] if isinstance(inputs[0], Picked) else one_chunk_if_few(concat([*inputs]))
