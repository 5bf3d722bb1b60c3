"""Finds the table that already stores a view's rows under other column names.

Law: a projection that only renames, reorders or drops columns, and keeps the key, has the same rows as its
input.
A view over it reads the table of the input step, and nothing is stored twice.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.operators.map import Map
from millpond.operators.scan import Scan
from millpond.plan.nodes import Plan, View


def own_view(plan: Plan, name: str, step: str) -> View | None:
    """The view of a projection as columns of the table of its input; None if no table has its rows.

    The table of a SQL table is not used: ALTER TABLE may change its columns, and its views then differ in
    their steps.
    """
    node = plan.nodes[step]
    if not isinstance(node.operator, Map) or node.reads:
        return None
    below = plan.nodes[node.inputs[0]]
    table = next((t for t in below.binding.tables if t.name == below.binding.view), None)
    if table is None or any(isinstance(plan.nodes[i].operator, Scan) for i in below.inputs):
        return None
    stored_columns = {shown: bound.column for shown, bound in node.binding.extra if bound.column is not None}
    names = set(stored_columns.values())
    if not len(names) == len(stored_columns) == len(node.binding.extra) or not names.issuperset(table.key):
        return None
    schema = node.binding.shape.schema
    if any(schema.field(shown).type != table.schema.field(of).type for shown, of in stored_columns.items()):
        return None
    return View(name, below.step, table.name, tuple(stored_columns.items()))


def without_step(plan: Plan, step: str) -> Plan:
    """The plan without a step that has no consumers."""
    return replace(plan, nodes={s: n for s, n in plan.nodes.items() if s != step})
