"""Whether what a step gives is already kept, under other names: then a view of it is that table.

Law: rows that a projection only renames, reorders or narrows, without losing a
column of the key, are the rows below it, one for one.  So a view over them reads the
table of the step below, and nothing is stored twice.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.operators.map import Map
from millpond.operators.scan import Scan
from millpond.plan.nodes import Plan, View


def own_view(plan: Plan, name: str, step: str) -> View | None:
    """The view of a projection as columns of the table below it; None where no table holds its rows.

    A table of users is not taken for it: it may change its columns, and its views are then told apart by
    their steps.
    """
    node = plan.nodes[step]
    if not isinstance(node.operator, Map) or node.reads:
        return None
    below = plan.nodes[node.inputs[0]]
    table = next((t for t in below.binding.tables if t.name == below.binding.view), None)
    if table is None or any(isinstance(plan.nodes[i].operator, Scan) for i in below.inputs):
        return None
    given = {shown: bound.column for shown, bound in node.binding.extra if bound.column is not None}
    held = set(given.values())
    if not len(held) == len(given) == len(node.binding.extra) or not held.issuperset(table.key):
        return None
    schema = node.binding.shape.schema
    if any(schema.field(shown).type != table.schema.field(of).type for shown, of in given.items()):
        return None
    return View(name, below.step, table.name, tuple(given.items()))


def without_step(plan: Plan, step: str) -> Plan:
    """The plan without a step that nobody reads."""
    return replace(plan, nodes={s: n for s, n in plan.nodes.items() if s != step})
