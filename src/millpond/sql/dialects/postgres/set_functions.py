"""Set-returning functions, in SELECT and in FROM: the library returns the list of their rows, to be unnested.

A function `f` of the dialect returns a set when the library has `f_rows`.
A column is named as PostgreSQL names it: after the alias, the function, or the function's own columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.sql.dialects.library import has
from millpond.sql.dialects.parse_tree import Tree, parsed
from millpond.sql.dialects.postgres.tree_parts import CATALOG, become, builtin, called, expression
from millpond.sql.refusal import pointing

_ROW = "__row"  # no column has this name

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


def nested_in_select(node: Tree, text: bytes) -> bool:
    """Change `unnest(regexp_matches(…))` and the like in a SELECT in place; was there one?

    Each row of the inner function gives the rows of the outer one.
    """
    sets = [call for item in node["select_list"] for call in _outermost_sets(item)]
    nested = [call for call in sets if any(_is_set_call(a["expression"]) for a in call["arguments"])]
    if not nested:
        return False
    if len(sets) > 1:
        at = (nested[0]["query_location"], nested[0]["query_location_length"])
        message = "a set-returning function within another one cannot stand beside a third one"
        raise pointing(message, text.decode(), at, "call the inner one in FROM")
    become(nested[0], builtin("unnest", _rows(nested[0])))
    return True


def _outermost_sets(part: Any) -> Iterator[Tree]:
    if isinstance(part, dict) and _is_set_call(part):
        yield part
    elif isinstance(part, dict):
        for key, value in part.items():
            if key != "subquery":
                yield from _outermost_sets(value)
    elif isinstance(part, list):
        for value in part:
            yield from _outermost_sets(value)


def _is_set_call(node: Tree) -> bool:
    if node.get("class") != "FUNCTION" or len(node["qualified_name"]["path"]) != 1:
        return False
    name = node["function_name"].lower()
    return name == "unnest" or is_set(name)


def _rows(call: Tree) -> Tree:
    """The list of the rows of a call."""
    name = call["function_name"].lower()
    arguments = [a["expression"] for a in call["arguments"]]
    inner = next((a for a in arguments if _is_set_call(a)), None)
    if inner is not None:
        arguments = [expression(_ROW) if a is inner else a for a in arguments]
    rows = arguments[0] if name == "unnest" else called(f"{name}_rows", *arguments)
    if inner is None:
        return rows
    each = expression(f"system.main.list_transform(b, lambda {_ROW}: a)")
    each["arguments"][0]["expression"] = _rows(inner)
    each["arguments"][1]["expression"]["expr"] = rows
    return builtin("flatten", each)


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


def read_as_values(found: list[Tree]) -> bool:
    """Change the name of a function in FROM, read as a column, to its only column; was there one?

    `SELECT e ->> 'a' FROM jsonb_array_elements(j) AS e` reads the values, where DuckDB has rows of one field.
    """
    named = [node["alias"].lower() for node in found if node.get("type") in _IN_FROM and node["alias"]]
    named += [
        node["table_name"].lower() for node in found if node.get("type") == "BASE_TABLE" and not node["alias"]
    ]
    columns = {
        node["alias"].lower(): node["column_name_alias"][0]
        for node in found
        if node.get("type") == "TABLE_FUNCTION"
        and _is_value(node)
        and named.count(node["alias"].lower()) == 1
    }
    listed = [item for node in found if node.get("type") == "SELECT_NODE" for item in node["select_list"]]
    changed = False
    for node in found if columns else ():
        if node.get("class") != "COLUMN_REF" or len(node["column_names"]) != 1:
            continue
        name = node["column_names"][0]
        if name.lower() in columns:
            if not node["alias"] and any(item is node for item in listed):
                node["alias"] = name
            node["column_names"] = [name, columns[name.lower()]]
            changed = True
    return changed


_IN_FROM = ("TABLE_FUNCTION", "BASE_TABLE", "SUBQUERY", "EXPRESSION_LIST", "JOIN")


def _is_value(node: Tree) -> bool:
    """Is this a function whose rows are values, with another name than their column?"""
    path, columns = node["function"]["qualified_name"]["path"], node["column_name_alias"]
    if (
        path[-1].lower() not in ("unnest", "generate_series")
        or node["with_ordinality"] != "WITHOUT_ORDINALITY"
    ):
        return False
    return len(columns) == 1 and columns[0].lower() != node["alias"].lower()


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
