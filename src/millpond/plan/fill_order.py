"""In which order a fill reads its tables: so that little is computed only to be taken back.

Law: any order gives the same state.  A row whose partner may still come is shown
alone and taken back, so what outer and anti joins look for comes before what looks for it.
Otherwise small tables come first: the rows of large ones then meet all that they are
joined with while they are at hand, and are never fetched again.
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.operators.join import Join
from millpond.plan.nodes import Plan

_SHOWN_ALONE = {"left": (0,), "anti": (0,), "right": (1,), "full": (0, 1)}  # sides, by kind of join


def fill_order(plan: Plan, rows: Mapping[str, int]) -> list[str]:
    """The scans of a plan, of which the number of rows is known, in the order in which to read them."""
    behind: dict[str, frozenset[str]] = {}
    before: dict[str, set[str]] = {scan: set() for scan in rows}
    for node in plan.topological():
        found = frozenset().union(*(behind[step] for step in node.inputs))
        behind[node.step] = found | {node.step} if node.step in rows else found
        if isinstance(node.operator, Join):
            for side in _SHOWN_ALONE.get(node.operator.kind, ()):
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
