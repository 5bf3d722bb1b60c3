"""The number of columns that a node of the bound plan returns."""

from __future__ import annotations

from millpond.sql.binding.types import Json
from millpond.sql.lowering.lowering import Lowering


def width_of(low: Lowering, node: Json) -> int:
    """Count the columns that a node returns, without adding its steps."""
    kind = node["type"]
    if kind in ("LOGICAL_PROJECTION",):
        return len(node["expressions"])
    if kind == "LOGICAL_GET":
        return len(node["column_indexes"]) + len(node.get("projected_input") or [])
    if kind == "LOGICAL_CROSS_PRODUCT":
        return sum(width_of(low, c) for c in node["children"])
    if kind == "LOGICAL_FILTER":
        return len(node.get("projection_map") or []) or width_of(low, node["children"][0])
    if kind == "LOGICAL_CTE_REF":
        return len(node["chunk_types"])
    if kind == "LOGICAL_AGGREGATE_AND_GROUP_BY":
        return len(node["groups"]) + len(node["expressions"]) + len(node.get("grouping_functions") or [])
    if kind in ("LOGICAL_UNION", "LOGICAL_EXCEPT", "LOGICAL_INTERSECT"):
        return int(node["column_count"])
    if kind in ("LOGICAL_DISTINCT", "LOGICAL_ORDER_BY", "LOGICAL_LIMIT"):
        return width_of(low, node["children"][0])
    if kind in ("LOGICAL_WINDOW", "LOGICAL_UNNEST"):
        return width_of(low, node["children"][0]) + len(node["expressions"])
    if kind == "LOGICAL_EXPRESSION_GET":
        return len(node["expr_types"])
    if kind == "LOGICAL_EMPTY_RESULT":
        return len(node["return_types"])
    if kind == "LOGICAL_DUMMY_SCAN":
        return 1
    if kind == "LOGICAL_MATERIALIZED_CTE":
        return width_of(low, node["children"][1])
    if kind in ("LOGICAL_COMPARISON_JOIN", "LOGICAL_ANY_JOIN", "LOGICAL_ASOF_JOIN"):
        left, right = (width_of(low, c) for c in node["children"])
        left = len(node.get("left_projection_map") or []) or left
        right = len(node.get("right_projection_map") or []) or right
        if node["join_type"] in ("SEMI", "ANTI"):
            return left
        return left + 1 if node["join_type"] == "MARK" else left + right
    return len(low.lower(node).columns)
