"""Common table expressions: one relation that all references share.

Columns that no reference reads are not computed.  Which ones these are is known only
after all references have been lowered, but they need the definition first, so a query is
lowered more than once (`query.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from millpond.sql.binding.types import Json
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation


def lower(low: Lowering, node: Json) -> Relation:
    return around(low, node, low.lower)


def around(low: Lowering, node: Json, rest: Callable[[Json], Relation]) -> Relation:
    """Lower the definition and the query that follows it, whose columns are those of the node."""
    index = int(node["table_index"])
    if (wanted := low.needed(node)) is not None:
        low.need(node["children"][1], wanted)
    whole = low.whole.get(index)
    if whole is None or whole.step not in low.builder.plan.nodes:  # a recursion moves its steps inside
        low.define(node)
        return rest(node["children"][1])
    low.ctes[index] = whole
    found = rest(node["children"][1])
    low.define_after(node)
    return found


def lower_reference(low: Lowering, node: Json) -> Relation:
    return low.refer(node)
