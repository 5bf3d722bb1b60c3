"""Combines filters that read the same rows into one item, at the place of the first."""

from __future__ import annotations

from dataclasses import replace

from millpond.engine.task.items.shared_filters import SharedFilters
from millpond.engine.task.passes.grouping import by_source, replaced
from millpond.engine.task.task_plan import TaskPlan
from millpond.operators.filter import Filter
from millpond.plan.nodes import Node


def shared_filters(tasks: TaskPlan) -> TaskPlan:
    groups = [SharedFilters(source, steps) for source, steps in by_source(tasks, _has_condition).items()]
    return replace(tasks, items=replaced(tasks.items, groups)) if groups else tasks


def _has_condition(node: Node) -> bool:
    """Does it filter by an expression, not by a column or a user's function?"""
    plain = isinstance(node.operator, Filter) and not node.operator.functions
    return plain and node.binding.extra.column is None
