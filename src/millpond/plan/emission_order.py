"""The order in which readers of changes receive the rows of a view that was emitted by time.

Law: rows that wait for the watermark, one by one (EMIT ON WINDOW CLOSE without windows, `in_order`) or with
their window, are emitted in the order of that time, within an epoch as from one epoch to the next.
State tables are sorted by key, so the order is restored when changes are read: by the columns that this
module finds.  A view without the time column has no such order within an epoch.
"""

from __future__ import annotations

from collections.abc import Iterable

from millpond.operators.emit_on_close import EmitOnClose
from millpond.operators.filter import Filter
from millpond.operators.in_order import InOrder
from millpond.operators.materialize import Materialize
from millpond.operators.per_key import PerKey
from millpond.operators.top_n import TopN
from millpond.operators.traits import RenamesColumns
from millpond.plan.nodes import Node, Plan


def emission_order(plan: Plan, step: str, columns: Iterable[str]) -> tuple[str, ...]:
    """The times among these columns of a step by which its rows were emitted; of a window its end first."""
    columns = list(columns)
    released = tuple(column for column in columns if _is_released_by(plan, step, column))
    shape = plan.shape(step)
    if released or not shape.append_only:
        return released
    closed = [b for b in shape.bounds if b.window == "closed" and b.column in columns]
    return tuple(b.column for b in sorted(closed, key=lambda b: max(shift for _, shift in b.marks)))


def _is_released_by(plan: Plan, step: str, column: str) -> bool:
    """Is this column the time for which rows waited, passed on unchanged?"""
    node = plan.nodes[step]
    while True:
        operator = node.operator
        if isinstance(operator, EmitOnClose):
            return operator.until.column == column and not operator.until.grid
        if isinstance(operator, InOrder):
            return operator.time == column
        origin = _passed_on(plan, node, column)
        if origin is None:
            return False
        column, node = origin, plan.nodes[node.inputs[0]]


def _passed_on(plan: Plan, node: Node, column: str) -> str | None:
    """The column of a step's input that it passes on unchanged as this one, if that is known."""
    operator = node.operator
    if isinstance(operator, RenamesColumns):
        return operator.passes(node.binding).get(column)
    # OVER adds columns to all that it reads; it is the only one to number rows.
    adds = isinstance(operator, PerKey) and operator.place is not None
    if not adds and not isinstance(operator, Filter | Materialize | TopN):
        return None
    return column if column in plan.shape(node.inputs[0]).schema.names else None
