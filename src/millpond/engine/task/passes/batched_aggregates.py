"""Combines aggregates of the same shape that no step reads into one item, in a single task.

Their rows are sent unprepared: one call prepares those of all members.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from millpond.engine.task.items.batched_aggregates import BatchedAggregates
from millpond.engine.task.passes.grouping import replaced
from millpond.engine.task.similar_aggregates import Member
from millpond.engine.task.task_plan import TaskPlan


def batched_aggregates(tasks: TaskPlan) -> TaskPlan:
    if not tasks.single_task:
        return tasks
    by_level = {level: groups_at(tasks, level) for level in range(tasks.level, tasks.levels.count)}
    groups = [BatchedAggregates(steps) for steps in by_level[tasks.level]]
    batched = {step for found in by_level.values() for steps in found for step in steps}
    sends = tuple(
        replace(send, unprepared=True) if send.edge.prepared_by in batched else send for send in tasks.sends
    )
    if not groups and sends == tasks.sends:
        return tasks
    return replace(tasks, items=replaced(tasks.items, groups), sends=sends)


def groups_at(tasks: TaskPlan, level: int) -> list[tuple[str, ...]]:
    """The steps of a level that one call can compute: no step reads them, and they read earlier levels."""
    plan, levels = tasks.plan, tasks.levels
    wanted = tasks.wanted
    groups: dict[Hashable, list[str]] = {}
    for node in (plan.nodes[step] for step in levels.steps[level] if step not in wanted):
        if node.reads or not all(levels.level_of[source] < level for source in node.inputs):
            continue
        member = Member.of(node.operator, node.binding)
        shape = None if member is None else member.likeness(plan.shape(node.inputs[0]).schema)
        if shape is not None:
            groups.setdefault(shape, []).append(node.step)
    return [tuple(steps) for steps in groups.values() if len(steps) > 1]
