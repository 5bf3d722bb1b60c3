"""Casts that read a text as PostgreSQL's input functions do: to jsonb; literals to bytea and arrays."""

from __future__ import annotations

from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.dialects.postgres.tree_parts import become, called


def rewritten_cast(node: Tree) -> bool:
    """Change a cast in place; was it one of these?"""
    kind = node["type_expr"].get("type_name", "").lower()
    child = node["child"]
    if kind == "jsonb":
        become(node, called("jsonb_in", child))
        return True
    literal = child.get("literal") or {}
    if child.get("class") != "CONSTANT" or literal.get("kind") != "STRING":
        return False
    if kind in ("bytea", "blob"):
        become(node, called("bytea_in", child))
        return True
    if kind == "list" and literal["text"].lstrip().startswith("{"):
        node["child"] = called("text_array_in", child)
        return True
    return False
