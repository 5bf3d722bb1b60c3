"""Steps whose rows are final, although their operator could take rows back.

Law: the rows of a window that closes come in one epoch.  So a step that computes something for each key, if
the key contains that window, computes it once and takes nothing back; neither does a join by such a window.
OVER by the time for which rows waited adds to rows what later ones do not change.
"""

from __future__ import annotations

from millpond.operators.accumulate import Accumulate
from millpond.operators.aggregate import Aggregate
from millpond.operators.distinct import Distinct
from millpond.operators.emit_on_close import EmitOnClose
from millpond.operators.extreme import Extreme
from millpond.operators.join import Join
from millpond.operators.materialize import Materialize
from millpond.operators.per_key import PerKey
from millpond.operators.reduce import Reduce
from millpond.operators.sliding_aggregate import SlidingAggregate
from millpond.operators.top_n import TopN
from millpond.operators.traits import RenamesColumns
from millpond.operators.union import Union
from millpond.plan.nodes import Node, Plan

WatermarkStates = tuple[tuple[str, int], ...]


def is_final(plan: Plan, step: str) -> bool:
    """Are the rows of a step never taken back?"""
    node = plan.nodes[step]
    if node.binding.shape.append_only:
        return True
    if not all(is_final(plan, one) for one in node.inputs):
        return False
    operator = node.operator
    if isinstance(operator, Materialize) or _is_linear(node):
        return True
    if isinstance(operator, Join):
        left, right = node.inputs
        pairs = zip(operator.left_on, operator.right_on, strict=True)
        return any(_meets(_closed_by(plan, left, a), _closed_by(plan, right, b)) for a, b in pairs)
    if isinstance(operator, PerKey) and operator.place is not None and _waited(plan, node.inputs[0]):
        return True
    return any(_closed_by(plan, node.inputs[0], column) is not None for column in _key(node))


def _is_linear(node: Node) -> bool:
    return not node.binding.tables and all(p.kind == "here" for p in node.binding.placements)


def _meets(one: WatermarkStates | None, other: WatermarkStates | None) -> bool:
    return one is not None and one == other


def _key(node: Node) -> tuple[str, ...]:
    """The columns of which all rows with the same values are computed together."""
    operator = node.operator
    if isinstance(operator, Accumulate | Aggregate | Extreme | PerKey | Reduce | TopN):
        return operator.key
    if isinstance(operator, Distinct):
        return tuple(node.binding.shape.schema.names) if operator.columns is None else operator.columns
    return ()


def _closed_by(plan: Plan, step: str, column: str) -> WatermarkStates | None:
    """The watermarks at which all rows of a step with one value of a column came, if it is such a time."""
    node = plan.nodes[step]
    operator = node.operator
    if isinstance(operator, EmitOnClose | SlidingAggregate) or (
        isinstance(operator, Aggregate) and operator.closes is not None
    ):
        bounds = [b for b in node.binding.shape.bounds if b.column == column and b.window == "closed"]
        return bounds[0].marks if bounds else None
    if isinstance(operator, Union):
        closing = {_closed_by(plan, one, column) for one in node.inputs}
        return closing.pop() if len(closing) == 1 else None
    if len(node.inputs) != 1:
        return None
    if isinstance(operator, RenamesColumns):
        inner = operator.passes(node.binding).get(column)
        return None if inner is None else _closed_by(plan, node.inputs[0], inner)
    passes = isinstance(operator, Materialize) or _is_linear(node) or column in _key(node)
    known = column in plan.shape(node.inputs[0]).schema.names
    return _closed_by(plan, node.inputs[0], column) if passes and known else None


def _waited(plan: Plan, step: str) -> bool:
    """Did the rows of a step wait, one by one, until the watermark had passed their time?"""
    node = plan.nodes[step]
    while not isinstance(node.operator, EmitOnClose):
        is_window = isinstance(node.operator, PerKey) and node.operator.place is not None
        if len(node.inputs) != 1 or not (is_window or _is_linear(node)):
            return False
        node = plan.nodes[node.inputs[0]]
    return not node.operator.until.window
