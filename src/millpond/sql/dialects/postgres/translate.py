"""Translates a query of PostgreSQL to DuckDB's SQL.

Law: translating a translated text changes nothing.
An operator or function that `__pg` defines is called there; an ORDER BY says where NULLs are.
"""

from __future__ import annotations

from millpond.sql.dialects.library import has
from millpond.sql.dialects.parse_tree import Tree, nodes, parsed, printed

CATALOG = "__pg"


def translated(sql: str) -> str:
    """The same query in DuckDB's SQL; a text that needs no change is returned as it is."""
    tree = parsed(sql)
    if tree is None:
        return sql
    changes = sum(_rewritten(node) for node in list(nodes(tree)))
    return printed(tree) if changes else sql


def _rewritten(node: Tree) -> bool:
    """Change one node in place; was there something to change?"""
    if node.get("class") == "FUNCTION" and len(node["qualified_name"]["path"]) == 1:
        return _called_there(node)
    if node.get("null_order") == "ORDER_DEFAULT":
        last = node["type"] != "DESCENDING"
        node["null_order"] = "NULLS_LAST" if last else "NULLS_FIRST"
        return not last  # DuckDB's default, too
    return False


def _called_there(node: Tree) -> bool:
    name = node["function_name"].lower()
    if not has(CATALOG, name):
        return False
    path = [CATALOG, "main", name]
    node.update(catalog=CATALOG, schema="main", function_name=name, is_operator=False)
    node["qualified_name"] = {"path": path}
    return True
