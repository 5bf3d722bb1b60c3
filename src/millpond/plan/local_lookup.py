"""Local lookups: finds the lookups of an epoch that need no exchange of their left rows.

A lookup joins each left row with the right side as of the epoch in which the row arrives, and stores nothing
of the left.  Left rows are exchanged only so that they meet what changes on the right in the same epoch.

Law: a lookup is *local* in an epoch if every task knows the complete right side without an exchange:

- nothing on the right can change: none of its sources has input, and none of its steps waits for time; or
- all its changes come directly from sources, are few, and nothing else reads them: then every task of level 0
  reads them itself (these steps are *shared*), and the task that owns a row writes it.

The result of the epoch is the same either way (law 3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millpond import tuning
from millpond.kernels.expressions import Expression
from millpond.operators.filter import Filter
from millpond.operators.lookup_join import LookupJoin
from millpond.operators.map import Map
from millpond.operators.scan import Scan
from millpond.operators.traits import FiresByTime
from millpond.plan.nodes import Node, Plan, upstream


@dataclass(frozen=True)
class LocalLookups:
    lookups: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()  # steps whose rows every task of level 0 reads completely


NO_LOCAL_LOOKUPS = LocalLookups()


def find_local_lookups(plan: Plan, rows: Mapping[str, int]) -> LocalLookups:
    """The local lookups of an epoch, from the number of rows that each scan reads."""
    lookups = [node for node in plan.nodes.values() if isinstance(node.operator, LookupJoin)]
    if not lookups:
        return NO_LOCAL_LOOKUPS
    behind = {node.step: upstream(plan, [node.inputs[1]]) for node in lookups}
    still = {step for step, steps in behind.items() if not any(_moves(plan, s, rows) for s in steps)}
    shared = {
        node.step
        for node in lookups
        if node.step not in still
        and all(_is_steady(plan.nodes[step]) for step in behind[node.step])
        and sum(rows.get(step, 0) for step in behind[node.step]) <= tuning.LOCAL_LOOKUP_ROWS_MAX
        and _read_by(plan, behind[node.step])
        <= {(n.step, 1) for n in lookups if n.inputs[1] == node.inputs[1]}
        and _in_first_level(plan, node.inputs[0], still)
    }
    return LocalLookups(
        frozenset(still | shared), frozenset(step for lookup in shared for step in behind[lookup])
    )


def _moves(plan: Plan, step: str, rows: Mapping[str, int]) -> bool:
    """Can a step emit rows without input from other steps: because it reads some, or because time passes?"""
    node = plan.nodes[step]
    by_time = any(table.time is not None for table in node.binding.tables)
    return step in rows or (by_time and isinstance(node.operator, FiresByTime))


def _is_steady(node: Node) -> bool:
    """Does a step return the same rows in every task that gets the same input?"""
    if isinstance(node.operator, Map | Filter):
        extra = node.binding.extra
        bound: list[Expression] = [extra] if isinstance(node.operator, Filter) else [e for _, e in extra]
        return not node.operator.functions and all(e.steady or e.column is not None for e in bound)
    return isinstance(node.operator, Scan)


def _read_by(plan: Plan, steps: Collection[str]) -> set[tuple[str, int]]:
    """The inputs of other steps that read one of these steps; a view of one of them counts as a reader."""
    shown = {(view.name, -1) for view in plan.views.values() if view.step in steps}
    readers = (one for step, edges in plan.consumers().items() if step in steps for one in edges)
    return shown | {(step, index) for step, index in readers if step not in steps}


def _in_first_level(plan: Plan, step: str, still: Collection[str]) -> bool:
    """Are the rows of a step computed without an exchange?"""
    return all(
        node.step in still or all(placement.kind == "here" for placement in node.binding.placements)
        for node in (plan.nodes[s] for s in upstream(plan, [step]))
    )
