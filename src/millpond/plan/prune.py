"""Which columns each step must give: a backward pass over the plan.

Law 5 for width: a source reads, and an exchange carries, only the columns
that some view needs.
"""

from __future__ import annotations

from millpond.plan.nodes import Plan


def needed_columns(plan: Plan) -> dict[str, frozenset[str]]:
    needed: dict[str, frozenset[str]] = {step: frozenset() for step in plan.nodes}
    for view in plan.views.values():
        needed[view.step] = frozenset(plan.shape(view.step).schema.names)
    for node in reversed(list(plan.topological())):
        if not node.inputs:
            continue
        wanted = node.operator.requires(node.binding, needed[node.step])
        for source, columns in zip(node.inputs, wanted, strict=True):
            needed[source] = needed[source] | columns
    return needed
