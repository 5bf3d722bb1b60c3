"""Finds steps that can share an item, and replaces their items by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from millpond.engine.task.items.apply import Apply
from millpond.engine.task.task_plan import Item, TaskPlan
from millpond.plan.nodes import Node


def by_source(tasks: TaskPlan, is_wanted: Callable[[Node], bool]) -> Mapping[str, tuple[str, ...]]:
    """Groups of two or more steps that have separate items and read the same step, by that step."""
    steps_by_source: dict[str, tuple[str, ...]] = {}
    for item in tasks.items:
        if isinstance(item, Apply) and is_wanted(tasks.plan.nodes[item.step]):
            source = tasks.plan.nodes[item.step].inputs[0]
            steps_by_source[source] = (*steps_by_source.get(source, ()), item.step)
    return {source: steps for source, steps in steps_by_source.items() if len(steps) > 1}


def replaced(items: Sequence[Item], groups: Sequence[Item]) -> tuple[Item, ...]:
    """The items with each group's steps replaced by the group, at the place of the first step."""
    group_of = {step: group for group in groups for step in group.steps}
    replaced_items: list[Item] = []
    for item in items:
        group = group_of.get(item.steps[0])
        if group is None:
            replaced_items.append(item)
        elif group.steps[0] == item.steps[0]:
            replaced_items.append(group)
    return tuple(replaced_items)
