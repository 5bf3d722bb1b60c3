"""Common table expressions: lowered once, read by name."""

from __future__ import annotations

from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation
from millpond.sql.types import Json


def lower(low: Lowering, node: Json) -> Relation:
    begin(low, node)
    return low.lower(node["children"][1])


def begin(low: Lowering, node: Json) -> None:
    """Lower the definition; what is read of the whole is read of the query that follows it."""
    low.define(node)
    if (wanted := low.needed(node)) is not None:
        low.need(node["children"][1], wanted)


def lower_reference(low: Lowering, node: Json) -> Relation:
    return low.ctes[int(node["cte_index"])]
