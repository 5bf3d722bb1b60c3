"""The steps that may have work in an epoch: rows reach them, or their time moves.

Law 1: windows close in the epoch whose watermark passes their end.  The watermark may belong to another
source than their rows: an idle source follows the active ones.  So its steps have work without any row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from millpond.operators.traits import FiresByTime
from millpond.plan.nodes import Plan


def moved_by(plan: Plan, active: Collection[str], heard_by: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The active steps, all behind them, and those that wait for a watermark that these move."""
    moved = set(active)
    before = -1
    while before < len(moved):
        before = len(moved)
        for node in plan.topological():
            fires = isinstance(node.operator, FiresByTime)
            if any(i in moved for i in node.inputs) or (
                fires and any(step in moved for step in heard_by.get(node.step, ()))
            ):
                moved.add(node.step)
    return frozenset(moved)
