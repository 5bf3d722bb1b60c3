"""The physical plan of one task: the items it runs, in order, and the rows it sends.

Law: the choice of items changes what an epoch costs, never its results (law 3).
A plan depends only on the program, so a worker makes it once and caches it.  An item decides at run time what
depends on the rows of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from millpond.engine.task.items.apply import Apply, LocalLookup
from millpond.engine.task.items.read import ReadSource, ReadTable
from millpond.engine.task.items.send import Send
from millpond.engine.task.plan_parts import PlanPart
from millpond.operators.scan import Scan
from millpond.operators.state_scan import StateScan
from millpond.plan.levels import Levels
from millpond.plan.nodes import Plan

if TYPE_CHECKING:
    from millpond.engine.task.task_run import TaskRun


class Item(Protocol):
    """One action of a task, as frozen data."""

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that it runs, in order."""

    def run(self, task: TaskRun) -> None: ...

    def text(self) -> str:
        """One line that describes it."""


@dataclass(frozen=True)
class TaskPlan:
    plan: Plan
    levels: Levels  # with only the steps of this task's part of the plan
    level: int
    single_task: bool  # one process runs every level: rows are passed in memory
    items: tuple[Item, ...]
    sends: tuple[Send, ...]
    keeps_hash: frozenset[str] = frozenset()  # steps whose output includes the hashes of their reader's key
    passes: tuple[str, ...] = ()  # the passes that changed this plan

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Steps whose output another step reads."""
        return frozenset(source for node in self.plan.nodes.values() for source in node.inputs)

    def text(self) -> str:
        lines = [item.text() for item in self.items] + [send.text() for send in self.sends]
        return "\n".join(lines)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)


def unoptimized(
    plan: Plan, levels: Levels, level: int, *, single_task: bool = False, part: PlanPart | None = None
) -> TaskPlan:
    """The plan with a separate item for every step and a send for every edge."""
    if part is not None:
        levels = part.of(levels)
    sends = tuple(
        Send(edge)
        for edge in levels.edges
        if edge.from_level == level
        and (part is None or not part.steps.isdisjoint(step for step, _ in edge.consumers))
    )
    items = tuple(_item(plan, levels, step) for step in levels.steps[level])
    return TaskPlan(plan, levels, level, single_task, items, sends)


def _item(plan: Plan, levels: Levels, step: str) -> Item:
    operator = plan.nodes[step].operator
    if isinstance(operator, Scan):
        return ReadSource(step)
    if isinstance(operator, StateScan):
        return ReadTable(step)
    return LocalLookup(step) if step in levels.local_lookups.lookups else Apply(step)
