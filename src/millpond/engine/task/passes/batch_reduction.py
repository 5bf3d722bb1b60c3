"""Lets the only reader of a fused scan's output reduce it, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.engine.task.items.fused_scan import BatchOutput, FusedScan
from millpond.engine.task.task_plan import TaskPlan
from millpond.operators.traits import DropsUnneededRows, PreAggregatesByBatch


def batch_reduction(tasks: TaskPlan) -> TaskPlan:
    if not any(isinstance(item, FusedScan) for item in tasks.items):
        return tasks
    consumers = tasks.plan.consumers()
    items = tuple(
        replace(item, outputs=tuple(_reduced(tasks, consumers[out.step], out) for out in item.outputs))
        if isinstance(item, FusedScan)
        else item
        for item in tasks.items
    )
    return tasks if items == tasks.items else replace(tasks, items=items)


def _reduced(tasks: TaskPlan, readers: Sequence[tuple[str, int]], output: BatchOutput) -> BatchOutput:
    if len(readers) != 1 or output.step in {view.step for view in tasks.plan.views.values()}:
        return output
    ((reader, index),) = readers
    operator = tasks.plan.nodes[reader].operator
    if isinstance(operator, PreAggregatesByBatch):
        sent = any(
            send.edge.producer == output.step and send.edge.prepared_by == reader for send in tasks.sends
        )
        # In one process rows are passed on unchanged.
        return replace(output, reader=(reader, index), pre_aggregates=sent and not tasks.single_task)
    return replace(output, reader=(reader, index)) if isinstance(operator, DropsUnneededRows) else output
