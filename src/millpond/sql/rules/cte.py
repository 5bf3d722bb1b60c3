"""Common table expressions: lowered once, read by name."""

from __future__ import annotations

from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation
from millpond.sql.types import Json


def lower(low: Lowering, node: Json) -> Relation:
    definition, body = node["children"]
    low.ctes[int(node["table_index"])] = low.lower(definition)
    return low.lower(body)


def lower_reference(low: Lowering, node: Json) -> Relation:
    return low.ctes[int(node["cte_index"])]
