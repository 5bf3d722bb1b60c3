"""Literals in quotes in UNION, INTERSECT and EXCEPT: they have the type of the same column on the other side.

`SELECT 1.5 UNION SELECT 'foo'` reads 'foo' as a numeric, where DuckDB makes all of it text.

Law: only the type of the other side is read.  It is known from the text of a constant, a cast and a count;
beside another expression a literal stays a text.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from millpond.sql.dialects.parse_tree import Tree, nodes
from millpond.sql.dialects.postgres.tree_parts import expression
from millpond.sql.dialects.postgres.unknown_literals import is_null, is_text, literal_beside
from millpond.sql.refusal import pointing

_INTEGERS = {
    "integer": "integer", "int": "integer", "int4": "integer", "bigint": "bigint", "int8": "bigint",
    "smallint": "smallint", "int2": "smallint",
}  # fmt: skip
_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_NUMBER = re.compile(r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|inf(?:inity)?)\s*", re.IGNORECASE)


def type_set_operation(node: Tree, sql: bytes) -> bool:
    """Give the literals in the queries of one set operation their types, in place; was there one?"""
    sides: list[Tree] = node["children"] or [node["left"], node["right"]]
    widths = {_width(side) for side in sides}
    width = widths.pop() if len(widths) == 1 else None
    changed = False
    for place in range(width or 0):
        for number, side in enumerate(sides):
            others = sides[:number] or sides[1:2]  # each with the result of those before it
            if side["type"] != "SELECT_NODE" or not is_text(item := side["select_list"][place]):
                continue
            beside = next((made for one in others if (made := _typed(one, place)) is not None), None)
            if beside is not None:
                _check(item, beside, sql)
                made = literal_beside({**item, "alias": ""}, beside)
                side["select_list"][place] = {**made, "alias": item["alias"]}
                changed = True
    return changed


def _check(item: Tree, beside: Tree, sql: bytes) -> None:
    """Refuse a literal that is no number beside one."""
    text = str(item["literal"]["text"])
    kind = _kind(beside)
    if kind in _INTEGERS:
        right = _INTEGER.fullmatch(text)
    elif kind in ("numeric", "decimal"):
        right = _NUMBER.fullmatch(text)
    else:
        return
    if right is None:
        at = (item["query_location"], item["query_location_length"])
        message = f'invalid input syntax for type {_INTEGERS.get(kind, "numeric")}: "{text}"'
        raise pointing(message, sql.decode(), at)


def _kind(beside: Tree) -> str:
    if beside["class"] == "CAST":
        return str(beside["type_expr"].get("type_name", "")).lower()
    literal = (beside.get("literal") or {}).get("kind")
    return {"INTEGER": "integer", "NUMERIC": "numeric"}.get(str(literal), "")


def _width(query: Tree) -> int | None:
    """The number of columns of a query, if it can be known from the text."""
    if query["type"] == "SET_OPERATION_NODE":
        return _width((query["children"] or [query["left"]])[0])
    if query["type"] != "SELECT_NODE" or any(item["class"] == "STAR" for item in query["select_list"]):
        return None
    return len(query["select_list"])


def _typed(query: Tree, place: int) -> Tree | None:
    """An expression with the type of a column, if it can be known from the text."""
    if query["type"] == "SET_OPERATION_NODE":
        sides = query["children"] or [query["left"], query["right"]]
        return next((made for side in sides if (made := _typed(side, place)) is not None), None)
    if query["type"] != "SELECT_NODE" or len(query["select_list"]) <= place:
        return None
    item = query["select_list"][place]
    if is_text(item) or is_null(item):
        return None
    if item["class"] == "CAST":
        return {**copy.deepcopy(item), "child": expression("NULL"), "alias": ""}
    if item["class"] == "FUNCTION" and item["function_name"] in ("count", "count_star"):
        return expression("CAST(NULL AS BIGINT)")
    return {**copy.deepcopy(item), "alias": ""} if all(map(_is_constant, nodes(item))) else None


def _is_constant(node: Any) -> bool:
    kind = node.get("class")
    return kind in (None, "CONSTANT", "CAST", "TYPE", "OPERATOR") or bool(node.get("is_operator"))
