"""Combines a scan and the items that can process its rows batch by batch into one item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.engine.task.items.apply import LocalLookup
from millpond.engine.task.items.fused_scan import BatchOutput, FusedScan
from millpond.engine.task.items.read import ReadSource
from millpond.engine.task.task_plan import Item, TaskPlan
from millpond.operators.traits import AppliesByBatch
from millpond.plan.nodes import Plan


def fused_scans(tasks: TaskPlan) -> TaskPlan:
    scans = [item for item in tasks.items if isinstance(item, ReadSource)]
    fused = [fused_item for scan in scans if (fused_item := _fused(tasks, scan)) is not None]
    if not fused:
        return tasks
    by_scan = {item.scan.step: item for item in fused}
    inside = {step for item in fused for step in item.steps}
    items = [
        by_scan.get(item.steps[0], item)
        for item in tasks.items
        if item.steps[0] in by_scan or item.steps[0] not in inside
    ]
    return replace(tasks, items=tuple(items))


def _fused(tasks: TaskPlan, scan: ReadSource) -> FusedScan | None:
    steps = [scan.step]
    items: list[Item] = []
    for item in tasks.items:
        if all(_follows(tasks.plan, item, step, steps) for step in item.steps):
            steps += item.steps
            items.append(item)
    if not items:
        return None
    outputs = tuple(BatchOutput(step) for step in steps if step in _read_outside(tasks.plan, steps))
    return FusedScan(scan, tuple(items), outputs)


def _follows(plan: Plan, item: Item, step: str, steps: Sequence[str]) -> bool:
    """Does an item read only these steps, batch by batch?"""
    node = plan.nodes[step]
    if isinstance(item, LocalLookup):
        return node.inputs[0] in steps and node.inputs[1] not in steps
    return isinstance(node.operator, AppliesByBatch) and all(source in steps for source in node.inputs)


def _read_outside(plan: Plan, steps: Sequence[str]) -> frozenset[str]:
    """The steps among these that any other step reads."""
    return frozenset(
        source
        for node in plan.nodes.values()
        if node.step not in steps
        for source in node.inputs
        if source in steps
    )
