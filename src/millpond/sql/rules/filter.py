"""Conditions; those over a product of two relations become its join."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.operators.filter import Filter
from millpond.sql.expressions import conjuncts, references, render, shifted
from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation
from millpond.sql.rules import join
from millpond.sql.types import Json


def lower(low: Lowering, node: Json) -> Relation:
    found = filtered(low, node["children"][0], list(conjuncts(node["expressions"])))
    kept = node.get("projection_map") or []
    return found.pick(kept) if kept else found


def filtered(low: Lowering, node: Json, conditions: Sequence[Json]) -> Relation:
    """The rows of a node for which all conditions hold, each looked at as early as can be."""
    if node["type"] == "LOGICAL_CROSS_PRODUCT":
        return _joined(low, node, conditions)
    if node["type"] == "LOGICAL_FILTER" and not node.get("projection_map"):
        return filtered(low, node["children"][0], [*conjuncts(node["expressions"]), *conditions])
    if node["type"] == "LOGICAL_COMPARISON_JOIN" and node["join_type"] == "MARK":
        return join.lower_mark(low, node, conditions)
    return kept(low, low.lower(node), conditions)


def kept(low: Lowering, source: Relation, conditions: Sequence[Json]) -> Relation:
    if not conditions:
        return source
    text = " AND ".join(render(c, source.columns) for c in conditions)
    return Relation(low.add(Filter(text), (source.step,), "where"), source.columns)


def _joined(low: Lowering, node: Json, conditions: Sequence[Json]) -> Relation:
    """A product under conditions: those of one side go below, equalities become keys, the rest stays."""
    left_node, right_node = node["children"]
    width = width_of(low, left_node)
    left: list[Json] = []
    right: list[Json] = []
    both: list[Json] = []
    for condition in conditions:
        used = set(references(condition))
        if used and max(used) < width:
            left.append(condition)
        elif used and min(used) >= width:
            right.append(shifted(condition, width))
        else:
            both.append(condition)
    a, b = filtered(low, left_node, left), filtered(low, right_node, right)
    keys, rest = [], []
    for condition in both:
        pair = _equality(condition, width)
        if pair is None:
            rest.append(condition)
        else:
            keys.append(pair)
    return join.inner(low, a, b, keys, rest)


def _equality(condition: Json, width: int) -> tuple[Json, Json, str] | None:
    """(left expression, right expression, comparison) of a condition that pairs the two sides."""
    if condition["type"] not in ("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM"):
        return None
    one, two = condition["children"]
    for a, b in ((one, two), (two, one)):
        left, right = set(references(a)), set(references(b))
        if left and right and max(left) < width <= min(right):
            return a, shifted(b, width), condition["type"]
    return None


def width_of(low: Lowering, node: Json) -> int:
    """How many columns a node gives, without adding its steps."""
    kind = node["type"]
    if kind in ("LOGICAL_PROJECTION",):
        return len(node["expressions"])
    if kind == "LOGICAL_GET":
        return len(node["column_indexes"])
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
    if kind == "LOGICAL_DUMMY_SCAN":
        return 0
    if kind == "LOGICAL_MATERIALIZED_CTE":
        return width_of(low, node["children"][1])
    if kind in ("LOGICAL_COMPARISON_JOIN", "LOGICAL_ANY_JOIN"):
        left, right = (width_of(low, c) for c in node["children"])
        left = len(node.get("left_projection_map") or []) or left
        right = len(node.get("right_projection_map") or []) or right
        if node["join_type"] in ("SEMI", "ANTI"):
            return left
        return left + 1 if node["join_type"] == "MARK" else left + right
    return len(low.lower(node).columns)
