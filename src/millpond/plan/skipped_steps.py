"""Finds the steps that need not run, because what reads them reads a copy of them.

A window reads rows from in front of the watermark step, through copies of the linear steps between the two
(`flow.window_steps`).  Often no step reads the originals: running them would call users' functions twice, and
a row on which they fail would be two error rows (law 9).
"""

from __future__ import annotations

from millpond.operators.scan import Scan
from millpond.plan.nodes import Node, Plan, upstream


def skipped_steps(plan: Plan) -> frozenset[str]:
    """The linear steps without readers of which there is a copy over the same sources that is read."""
    readers = {step: {reader for reader, _ in skipped} for step, skipped in plan.consumers().items()}
    shown = {view.step for view in plan.views.values()}
    copies: dict[type, list[Node]] = {}
    for node in plan.nodes.values():
        if _may_be_copied(node):
            copies.setdefault(type(node.operator), []).append(node)
    skipped: set[str] = set()
    for node in reversed([*plan.topological()]):
        if not _may_be_copied(node) or node.step in shown or readers[node.step] - skipped:
            continue
        others = (one for one in copies[type(node.operator)] if one.step != node.step)
        if any(
            one.operator == node.operator
            and readers[one.step] - skipped
            and _sources(plan, one) == _sources(plan, node)
            for one in others
        ):
            skipped.add(node.step)
    return frozenset(skipped)


def _may_be_copied(node: Node) -> bool:
    here = all(placement.kind == "here" for placement in node.binding.placements)
    return bool(node.inputs) and here and not node.binding.tables


def _sources(plan: Plan, node: Node) -> set[str]:
    return {step for step in upstream(plan, [node.step]) if isinstance(plan.nodes[step].operator, Scan)}
