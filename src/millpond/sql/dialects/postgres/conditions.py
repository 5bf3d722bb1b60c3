"""Conditions must be boolean: DuckDB takes any number for one, PostgreSQL refuses it.

A condition that may be of another type by what is written becomes the argument of `__pg.truth`, which takes
booleans only and gives its argument.

Law: a comparison, and all else that is surely boolean, stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.dialects.postgres.tree_parts import called

_NUMBERS = ("INTEGER", "NUMERIC")
_OTHERS = frozenset(  # functions and operators that never give a boolean
    [
        *("+", "-", "*", "/", "%", "^", "||", "count", "count_star", "sum", "avg", "stddev", "variance"),
        *("string_agg", "array_agg", "row_number", "rank", "dense_rank", "ntile", "length", "char_length"),
        *("abs", "ceil", "floor", "round", "trunc", "mod", "sign", "power", "sqrt", "random"),
        *("lower", "upper", "trim", "ltrim", "rtrim", "concat", "replace", "substring", "substr", "position"),
        *(
            "strpos",
            "to_char",
            "to_date",
            "to_number",
            "to_timestamp",
            "date_part",
            "date_trunc",
            "now",
            "age",
        ),
        *("cardinality", "array_length", "json_array_length", "jsonb_array_length"),
    ]
)
_BOOLEANS = ("boolean", "bool")

Place = tuple[Tree, Callable[[Tree], None]]  # a condition, and what puts another one in its place


def check_conditions(node: Tree) -> bool:
    """Check the conditions directly in one node, in place; was there one to check?"""
    changed = False
    for condition, put in _conditions(node):
        if _may_be_other(condition):
            place = {key: condition[key] for key in ("query_location", "query_location_length")}
            put({**called("truth", condition), **place})
            changed = True
    return changed


def checked_condition(node: Tree) -> Tree:
    """A condition that stands alone."""
    return called("truth", node) if _may_be_other(node) else node


def _conditions(node: Tree) -> Iterator[Place]:
    kind = node.get("type")
    if kind == "SELECT_NODE":
        yield from _fields(node, "where_clause", "having", "qualify")
    elif kind == "JOIN":
        yield from _fields(node, "condition")
    elif kind == "OPERATOR_NOT" or node.get("class") == "CONJUNCTION":
        children = node["children"]
        for place, child in enumerate(children):
            yield child, lambda fresh, place=place: children.__setitem__(place, fresh)  # type: ignore[misc]
    elif kind == "CASE_EXPR":
        for check in node["case_checks"]:
            yield from _fields(check, "when_expr")
    elif node.get("class") in ("FUNCTION", "WINDOW"):
        yield from _fields(node, "filter", "filter_expr")


def _fields(node: Tree, *names: str) -> Iterator[Place]:
    for name in names:
        if node.get(name):
            yield node[name], lambda fresh, name=name: node.update({name: fresh})  # type: ignore[misc]


def _may_be_other(node: Tree) -> bool:
    kind = node.get("class")
    if kind == "COLUMN_REF":
        return True
    if kind == "CONSTANT":
        return (node.get("literal") or {}).get("kind") in _NUMBERS
    if kind == "CAST":
        return str(node["type_expr"].get("type_name", "")).lower() not in _BOOLEANS
    if kind in ("FUNCTION", "WINDOW"):
        return len(node["qualified_name"]["path"]) == 1 and node["function_name"].lower() in _OTHERS
    if kind == "CASE":
        branches = [check["then_expr"] for check in node["case_checks"]]
        return any(map(_may_be_other, [*branches, node.get("else_expr") or {}]))
    if node.get("type") == "OPERATOR_COALESCE":
        return any(map(_may_be_other, node["children"]))
    return node.get("type") == "ARRAY_EXTRACT"
