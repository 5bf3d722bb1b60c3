"""Near lookups: the lookups of an epoch that are made where the rows are.

A lookup joins each row with what its right side holds when the row comes, and keeps
nothing of the left.  So its rows travel for one reason: that they must see what changes
on the right in the same epoch.  Law: a lookup is *local* in an epoch in which every task
knows the whole right side without being sent any of it, which is when

- nothing can change there: no source behind it has input, and no step there waits for
  time; or
- all that changes comes straight from sources, is little, and is read by nobody else:
  then every task of level 0 reads it for itself (its steps are *shared*), and the task
  that owns a row writes it.

What the epoch gives is the same either way (law 3).
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
    shared: frozenset[str] = frozenset()  # steps whose rows every task of level 0 has, all of them


NO_LOCAL_LOOKUPS = LocalLookups()


def find_local_lookups(plan: Plan, rows: Mapping[str, int]) -> LocalLookups:
    """The local lookups of an epoch, by how many rows each scan is given."""
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
    """May a step give rows of its own accord: as it reads some, or as their time has come?"""
    node = plan.nodes[step]
    by_time = any(table.time is not None for table in node.binding.tables)
    return step in rows or (by_time and isinstance(node.operator, FiresByTime))


def _is_steady(node: Node) -> bool:
    """Does a step give the same rows in every task that is given the same?"""
    if isinstance(node.operator, Map | Filter):
        extra = node.binding.extra
        bound: list[Expression] = [extra] if isinstance(node.operator, Filter) else [e for _, e in extra]
        return not node.operator.functions and all(e.steady or e.column is not None for e in bound)
    return isinstance(node.operator, Scan)


def _read_by(plan: Plan, steps: Collection[str]) -> set[tuple[str, int]]:
    """The inputs of other steps that read some of these; a view that is one of these counts as one."""
    shown = {(view.name, -1) for view in plan.views.values() if view.step in steps}
    readers = (one for step, found in plan.consumers().items() if step in steps for one in found)
    return shown | {(step, index) for step, index in readers if step not in steps}


def _in_first_level(plan: Plan, step: str, still: Collection[str]) -> bool:
    """Was nothing exchanged that the rows of a step are made of?"""
    return all(
        node.step in still or all(placement.kind == "here" for placement in node.binding.placements)
        for node in (plan.nodes[s] for s in upstream(plan, [step]))
    )
