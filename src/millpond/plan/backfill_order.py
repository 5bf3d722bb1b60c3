"""Chooses the order in which a backfill reads its tables, so that few results are retracted again.

Law: any order gives the same state.
An outer or anti join emits a row without a partner and retracts it when the partner comes, so the other
side of such a join is read first.
Otherwise small tables are read first: the rows of large tables then find all their partners at once and are
never fetched again.
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.operators.join import Join
from millpond.plan.nodes import Plan

_EMITTED_ALONE = {"left": (0,), "anti": (0,), "right": (1,), "full": (0, 1)}  # sides, by kind of join


def backfill_order(plan: Plan, rows: Mapping[str, int]) -> list[str]:
    """The scans of a plan in the order in which to read them; `rows` has the size of each."""
    behind: dict[str, frozenset[str]] = {}
    before: dict[str, set[str]] = {scan: set() for scan in rows}
    for node in plan.topological():
        waits_for = frozenset().union(*(behind[step] for step in node.inputs))
        behind[node.step] = waits_for | {node.step} if node.step in rows else waits_for
        if isinstance(node.operator, Join):
            for side in _EMITTED_ALONE.get(node.operator.kind, ()):
                own, other = behind[node.inputs[side]], behind[node.inputs[1 - side]]
                for scan in own - other:
                    before[scan] |= other - own
    order: list[str] = []
    left = dict(rows)
    while left:
        ready = [scan for scan in left if not before[scan] & left.keys()] or list(left)
        order.append(min(ready, key=lambda scan: (left[scan], scan)))
        del left[order[-1]]
    return order
