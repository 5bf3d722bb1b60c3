"""Comparisons of row values, part by part: `(a, b) < (c, d)` is `a < c OR (a = c AND b < d)`.

DuckDB compares rows as whole values, in which NULLs are equal; in PostgreSQL a comparison that a NULL decides
is NULL.
"""

from __future__ import annotations

from millpond.sql.dialects.parse_tree import Tree, nodes
from millpond.sql.dialects.postgres.tree_parts import become, expression

_STRICT = {
    "COMPARE_LESSTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_GREATERTHAN",
}


def rewritten_comparison(node: Tree) -> bool:
    """Change a comparison of two rows in place; was it one?"""
    if node.get("class") != "COMPARISON":
        return False
    left, right = _parts(node["left"]), _parts(node["right"])
    if left is None or right is None or len(left) != len(right) or len(left) < 2:
        return False
    pairs = list(zip(left, right, strict=True))
    kind = node["type"]
    if kind == "COMPARE_EQUAL":
        made = _joined("AND", [_compared(kind, *pair) for pair in pairs])
    elif kind == "COMPARE_NOTEQUAL":
        made = _joined("OR", [_compared(kind, *pair) for pair in pairs])
    elif kind in _STRICT:
        made = _compared(kind, *pairs[-1])
        for pair in reversed(pairs[:-1]):
            rest = _joined("AND", [_compared("COMPARE_EQUAL", *pair), made])
            made = _joined("OR", [_compared(_STRICT[kind], *pair), rest])
    else:
        return False
    become(node, made)
    return True


def _parts(node: Tree) -> list[Tree] | None:
    """The values of a row; None if it is none, or holds a query, which must not be repeated."""
    if node.get("class") != "FUNCTION" or node["qualified_name"]["path"] != ["row"]:
        return None
    if any(inner.get("class") == "SUBQUERY" for inner in nodes(node)):
        return None
    return [argument["expression"] for argument in node["arguments"]]


def _compared(kind: str, left: Tree, right: Tree) -> Tree:
    made = expression("a = b")
    made.update(type=kind, left=left, right=right)
    return made


def _joined(word: str, conditions: list[Tree]) -> Tree:
    made = expression(f"a {word} b")
    made["children"] = conditions
    return made
