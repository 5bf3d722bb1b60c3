"""Writes AND and OR so that their operands are evaluated from left to right and no further than needed.

DuckDB guarantees no order and picks one by speed.  Law 3: whether a row fails does not depend on other rows.
"""

from __future__ import annotations

from typing import Any

from millpond.kernels.duckdb_syntax import Node


def ordered(node: Any, *, condition: bool) -> Any:
    """Write AND and OR as CASE, whose branches are evaluated only for the rows that reach them.

    In a condition NULL and false are equivalent, so each operand is written once.  As
    a value, NULL must be returned as NULL, so the last branch repeats all operands.
    """
    if isinstance(node, list):
        return [ordered(child, condition=False) for child in node]
    if not isinstance(node, dict):
        return node
    if node.get("class") != "CONJUNCTION":
        return {key: ordered(value, condition=False) for key, value in node.items()}
    operands = [ordered(child, condition=condition) for child in node["children"]]
    conjunction = node["type"] == "CONJUNCTION_AND"
    if condition:
        return _one_by_one(operands, conjunction)
    stops = [_not(operand) if conjunction else operand for operand in operands[:-1]]
    return _case(stops, _truth(not conjunction), {**node, "children": operands})


def _one_by_one(operands: list[Node], conjunction: bool) -> Node:
    """Evaluate conditions from left to right, by recursive halving, so that long lists do not nest deep."""
    if len(operands) == 1:
        return operands[0]
    middle = len(operands) // 2
    first, rest = (_one_by_one(some, conjunction) for some in (operands[:middle], operands[middle:]))
    return _case([first], rest, _truth(False)) if conjunction else _case([first], _truth(True), rest)


def _case(whens: list[Node], then: Node, otherwise: Node) -> Node:
    checks = [{"when_expr": when, "then_expr": then} for when in whens]
    return {"class": "CASE", "type": "CASE_EXPR", "alias": "", "case_checks": checks, "else_expr": otherwise}


def _not(node: Node) -> Node:
    return {"class": "OPERATOR", "type": "OPERATOR_NOT", "alias": "", "children": [node]}


def _truth(value: bool) -> Node:
    literal = {"kind": "BOOLEAN", "text": "true" if value else "false"}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": literal}
