"""Common table expressions: one relation for all who read it, by name.

What none of them reads is not computed.  It is known when all who read it have been
lowered, and they need it before: so a query is lowered again (`query.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation
from millpond.sql.types import Json


def lower(low: Lowering, node: Json) -> Relation:
    return around(low, node, low.lower)


def around(low: Lowering, node: Json, rest: Callable[[Json], Relation]) -> Relation:
    """The definition and the query that follows it, of which is read what is read of the whole."""
    index = int(node["table_index"])
    if (wanted := low.needed(node)) is not None:
        low.need(node["children"][1], wanted)
    whole = low.whole.get(index)
    if whole is None or whole.step not in low.builder.plan.nodes:  # steps inside a recursion go into it
        low.define(node)
        return rest(node["children"][1])
    low.ctes[index] = whole
    found = rest(node["children"][1])
    low.define_after(node)
    return found


def lower_reference(low: Lowering, node: Json) -> Relation:
    return low.refer(node)
