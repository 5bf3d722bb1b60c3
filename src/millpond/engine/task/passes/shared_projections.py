"""Combines projections that compute something from the same rows into one item, at the first one's place."""

from __future__ import annotations

from dataclasses import replace

from millpond.engine.task.items.shared_projections import SharedProjections
from millpond.engine.task.passes.grouping import by_source, replaced
from millpond.engine.task.task_plan import TaskPlan
from millpond.operators.map import Map
from millpond.plan.nodes import Node


def shared_projections(tasks: TaskPlan) -> TaskPlan:
    origins = tasks.levels.origins | tasks.levels.watermarks.inputs
    projections = by_source(tasks, lambda node: _computes(node) and (node.step, 0) not in origins)
    groups = [SharedProjections(source, steps) for source, steps in projections.items()]
    return replace(tasks, items=replaced(tasks.items, groups)) if groups else tasks


def _computes(node: Node) -> bool:
    """Does it compute an expression, over columns that its input has now?"""
    plain = isinstance(node.operator, Map) and not node.operator.functions and not node.reads
    return plain and any(bound.column is None for _, bound in node.binding.extra)
