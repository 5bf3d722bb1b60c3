"""Common table expressions: lowered once, read by name."""

from __future__ import annotations

from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation
from millpond.sql.types import Json


def lower(low: Lowering, node: Json) -> Relation:
    low.define(node)
    return low.lower(node["children"][1])


def lower_reference(low: Lowering, node: Json) -> Relation:
    return low.ctes[int(node["cte_index"])]
