"""Lets shared filters that only batched aggregates read output positions of rows instead of copies.

Projections between them that only rename columns pass the positions on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from millpond.engine.task.items.apply import Apply
from millpond.engine.task.items.shared_filters import PassPositions, SharedFilters
from millpond.engine.task.task_plan import Item, TaskPlan
from millpond.operators.map import Map
from millpond.plan.nodes import Node

Consumers = Mapping[str, Sequence[tuple[str, int]]]


def row_positions(tasks: TaskPlan) -> TaskPlan:
    # Only batched aggregates accept unprepared rows.
    batched = {send.edge.prepared_by for send in tasks.sends if send.unprepared}
    consumers = tasks.plan.consumers()
    positions = {
        step
        for item in tasks.items
        if isinstance(item, SharedFilters)
        for filter_step in item.filters
        for step in _way(tasks, consumers, filter_step, batched)
    }
    if not positions:
        return tasks
    return replace(tasks, items=tuple(_with_positions(item, positions) for item in tasks.items))


def _way(tasks: TaskPlan, readers: Consumers, step: str, batched: set[str | None]) -> list[str]:
    """A filter and the projections after it, if only a batched aggregate reads them."""
    level_of = tasks.levels.level_of
    way: list[str] = []
    origins = tasks.levels.origins | tasks.levels.watermarks.inputs
    while len(readers[step]) == 1 and (step, 0) not in origins:
        way.append(step)
        step = readers[step][0][0]
        if step in batched:
            return way
        if not _only_renames(tasks.plan.nodes[step]) or level_of[step] != level_of[way[0]]:
            return []
    return []


def _only_renames(node: Node) -> bool:
    plain = isinstance(node.operator, Map) and not node.operator.functions and not node.reads
    return plain and all(bound.column is not None for _, bound in node.binding.extra)


def _with_positions(item: Item, steps: set[str]) -> Item:
    if isinstance(item, SharedFilters):
        return replace(item, as_positions=frozenset(steps.intersection(item.filters)))
    return PassPositions(item.step) if isinstance(item, Apply) and item.step in steps else item
