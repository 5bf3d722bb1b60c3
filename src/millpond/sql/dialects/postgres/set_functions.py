"""Set-returning functions, in SELECT and in FROM: the library returns the list of their rows, which is unnested.

A function `f` of the dialect returns a set when the library has `f_rows`.
A column is named as PostgreSQL names it: after the alias, the function, or the function's own columns.
"""

from __future__ import annotations

import copy

from millpond.sql.dialects.library import has
from millpond.sql.dialects.parse_tree import Tree, parsed
from millpond.sql.dialects.postgres.tree_parts import CATALOG, become, builtin, called

# The columns of functions that return more than one, or name the one that they return.
COLUMNS = {
    "json_each": ("key", "value"),
    "jsonb_each": ("key", "value"),
    "json_each_text": ("key", "value"),
    "jsonb_each_text": ("key", "value"),
    "json_array_elements": ("value",),
    "jsonb_array_elements": ("value",),
    "json_array_elements_text": ("value",),
    "jsonb_array_elements_text": ("value",),
}


def is_set(name: str) -> bool:
    return has(CATALOG, f"{name}_rows")


def in_select(name: str, node: Tree) -> None:
    """Unnest the rows of a call in an expression."""
    rows = called(f"{name}_rows", *(a["expression"] for a in node["arguments"]))
    become(node, builtin("unnest", rows))


def in_from(node: Tree) -> bool:
    """Unnest the rows of a call in FROM; was there one?"""
    function = node["function"]
    if len(function["qualified_name"]["path"]) != 1:
        return False
    name = function["function_name"].lower()
    if not is_set(name):
        return False
    rows = called(f"{name}_rows", *(copy.deepcopy(a["expression"]) for a in function["arguments"]))
    columns = list(COLUMNS.get(name, ()))
    shown = node["alias"] or name
    numbered = node["with_ordinality"] != "WITHOUT_ORDINALITY"
    if len(columns) > 1:
        _as_query(node, rows, columns, shown, numbered)
        return True
    given = node["column_name_alias"] or (columns if columns else [shown])
    if numbered and len(given) < 2:
        given = [*given, "ordinality"]
    node.update(function=builtin("unnest", rows), alias=shown, column_name_alias=given)
    return True


def _as_query(node: Tree, rows: Tree, columns: list[str], alias: str, numbered: bool) -> None:
    """Several columns: unnest structs in a subquery."""
    fields = ", ".join(f'row_of."{c}" AS "{c}"' for c in columns)
    number = ", at AS ordinality" if numbered else ""
    inner = "unnest([1]) WITH ORDINALITY AS u(row_of, at)" if numbered else "unnest([1]) AS u(row_of)"
    tree = parsed(f"SELECT * FROM (SELECT {fields}{number} FROM {inner}) AS alias_of_it")
    assert tree is not None
    made: Tree = tree["statements"][0]["node"]["from_table"]
    made["subquery"]["node"]["from_table"]["function"]["arguments"][0]["expression"] = rows
    made.update(alias=alias, column_name_alias=node["column_name_alias"])
    node.clear()
    node.update(made)
