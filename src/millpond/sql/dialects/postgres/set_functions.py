"""Set-returning functions, in SELECT and in FROM: the library returns the list of their rows, to be unnested.

A function `f` of the dialect returns a set when the library has `f_rows`.
A column is named as PostgreSQL names it: after the alias, the function, or the function's own columns.
"""

from __future__ import annotations

from millpond.sql.dialects.library import has
from millpond.sql.dialects.parse_tree import Tree, parsed
from millpond.sql.dialects.postgres.tree_parts import CATALOG, become, builtin, called, expression

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
    if name == "unnest" and len(function["arguments"]) > 1:
        _side_by_side(node, [a["expression"] for a in function["arguments"]])
        return True
    if not is_set(name) or (name == "generate_series" and not _has_fractions(function)):
        return False  # DuckDB's own series are read row by row
    rows = called(f"{name}_rows", *(a["expression"] for a in function["arguments"]))
    columns = list(COLUMNS.get(name, ()))
    shown = node["alias"] or name
    numbered = node["with_ordinality"] != "WITHOUT_ORDINALITY"
    if len(columns) > 1 or numbered:
        _as_query(node, rows, columns or [shown], shown, numbered)
        return True
    given = node["column_name_alias"] or (columns if columns else [shown])
    node.update(function=builtin("unnest", rows), alias=shown, column_name_alias=given)
    return True


def _has_fractions(function: Tree) -> bool:
    """Is there a numeric among the arguments, for which DuckDB has no series?"""
    return any((a["expression"].get("literal") or {}).get("kind") == "NUMERIC" for a in function["arguments"])


def _side_by_side(node: Tree, arrays: list[Tree]) -> None:
    """Several arrays: their elements side by side, with NULLs behind the shorter ones."""
    columns = ", ".join(f"unnest(a{n})" for n in range(len(arrays)))
    numbered = node["with_ordinality"] != "WITHOUT_ORDINALITY"
    made = _subquery(f"SELECT {columns}")
    listed = made["subquery"]["node"]["select_list"]
    for column, array in zip(listed, arrays, strict=True):
        column["arguments"][0]["expression"] = array
        column["alias"] = "unnest"
    names = ["unnest"] * len(arrays)
    if numbered:
        place = expression("unnest(range(1, len(list_zip(x)) + 1)) AS place")
        zipped = place["arguments"][0]["expression"]["arguments"][1]["expression"]["arguments"][0][
            "expression"
        ]
        zipped["arguments"][0]["expression"] = builtin("list_zip", *arrays)
        listed.append(place)
        names.append("ordinality")
    given = node["column_name_alias"]
    made.update(alias=node["alias"] or "unnest", column_name_alias=[*given, *names[len(given) :]])
    node.clear()
    node.update(made)


def _as_query(node: Tree, rows: Tree, columns: list[str], alias: str, numbered: bool) -> None:
    """Several columns, or their numbers: unnest the rows in a subquery."""
    fields = (
        ", ".join(f'row_of."{c}" AS "{c}"' for c in columns)
        if len(columns) > 1
        else f'row_of AS "{columns[0]}"'
    )
    number = ", place AS ordinality" if numbered else ""
    places = "unnest(range(1, len(l) + 1)) AS place"
    inner = f"(SELECT unnest(l) AS row_of, {places} FROM (SELECT x AS l) AS lists) AS u"
    made = _subquery(f"SELECT {fields}{number} FROM {inner}")
    lists = made["subquery"]["node"]["from_table"]["subquery"]["node"]["from_table"]
    lists["subquery"]["node"]["select_list"][0] = {**rows, "alias": "l"}
    made.update(alias=alias, column_name_alias=node["column_name_alias"])
    node.clear()
    node.update(made)


def _subquery(text: str) -> Tree:
    tree = parsed(f"SELECT * FROM ({text}) AS alias_of_it")
    assert tree is not None, text
    found: Tree = tree["statements"][0]["node"]["from_table"]
    return found
