"""The body of a function, as DuckDB parses it, with the positions of its arguments.

An expression is stored with a mark in place of each argument.  A body that defines
names of its own (a query or a lambda) is stored unchanged; its arguments become
columns of a row that it reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from millpond.errors import InvalidError
from millpond.kernels.sql_pictures import picture
from millpond.plan.objects import SqlColumn
from millpond.sql.binding.functions import argument
from millpond.sql.text.duckdb_parser import ask, parser
from millpond.sql.text.parse import closest_name

Node = dict[str, Any]


@dataclass(frozen=True)
class Body:
    text: str
    row: bool  # does it read its arguments from a row?


def read_scalar(name: str, columns: Sequence[SqlColumn], sql: str) -> Body:
    """Read the body of a scalar function: an expression, or a query that returns one value."""
    tree = _tree(f"select (\n{sql}\n)")
    query = False
    if tree["error"]:
        query = not _tree(sql)["error"]
        if not query:
            raise _wrong(tree, sql, len("select (\n"))
        tree = _tree(f"select (\n{sql}\n)")
    expression = _only_expression(sql)
    if expression is not None:
        tree, query = _tree(f"select {expression}"), False
    if tree["error"]:
        raise _wrong(tree, sql, len("select (\n"))
    select = tree["statements"][0]["node"]
    nodes = list(_walk(select["select_list"][0]))
    if query or any(n["class"] in ("SUBQUERY", "LAMBDA") for n in nodes):
        return Body(f"(\n{expression or sql}\n)", True)
    _mark_parameters(name, columns, nodes, sql)
    text = ask("select json_deserialize_sql(?::json)", [json.dumps(tree)])
    return Body(f"({str(text).removeprefix('SELECT ')})", False)


def read_query(sql: str) -> str:
    """Read the body of a function that returns rows."""
    tree = _tree(sql)
    if tree["error"]:
        raise _wrong(tree, sql, 0)
    if len(tree["statements"]) != 1:
        raise InvalidError("the body of a function is one query", detail=f"in the body\n{picture(sql, None)}")
    return sql


def functions_in(sql: str) -> set[str]:
    """Return the names of the functions that a query or expression calls, in lower case."""
    tree = _tree(sql)
    if tree["error"]:
        tree = _tree(f"select (\n{sql}\n)")
    return {str(n["function_name"]).lower() for n in _nodes(tree) if n.get("function_name")}


@lru_cache(maxsize=1)
def built_in() -> frozenset[str]:
    rows = parser().execute("select distinct lower(function_name) from duckdb_functions()").fetchall()
    return frozenset(name for (name,) in rows) | {"tumble", "hop", "cumulate", "calendar", "session"}


def _only_expression(sql: str) -> str | None:
    """Return the expression of a query that is only `SELECT expression`, else None."""
    tree = _tree(sql)
    if tree["error"] or len(tree["statements"]) != 1:
        return None
    select = tree["statements"][0]["node"]
    plain = (
        select["type"] == "SELECT_NODE"
        and len(select["select_list"]) == 1
        and select["from_table"]["type"] == "EMPTY"
        and select["where_clause"] is None
        and not select["modifiers"]
        and not (select.get("cte_map") or {}).get("map")
        and not select.get("group_expressions")
        and select.get("having") is None
        and select.get("qualify") is None
        and select["select_list"][0]["class"] != "STAR"
    )
    if not plain:
        return None
    select["select_list"][0]["alias"] = ""
    text = ask("select json_deserialize_sql(?::json)", [json.dumps(tree)])
    return str(text).removeprefix("SELECT ")


def _mark_parameters(name: str, columns: Sequence[SqlColumn], nodes: Sequence[Node], sql: str) -> None:
    """Replace parameter names in the body with the marks of the arguments."""
    known = {c.name.lower(): n for n, c in enumerate(columns)}
    for node in nodes:
        if node["class"] != "COLUMN_REF":
            continue
        path = [str(p).lower() for p in node["column_names"]]
        own = path[1:] if path[0] == name.lower() and len(path) > 1 else path
        if own[0] not in known:
            listed = ", ".join(c.name for c in columns) or "none"
            raise InvalidError(
                f"{name}() has no parameter {node['column_names'][-1]!r}",
                detail=f"parameters are {listed}; in the body\n{picture(sql, None)}",
                hint=closest_name(own[0], list(known)),
            )
        node["column_names"] = [argument(known[own[0]]), *node["column_names"][len(path) - len(own) + 1 :]]


def _tree(sql: str) -> Node:
    found: Node = json.loads(ask("select json_serialize_sql(?)", [sql]))
    return found


def _wrong(tree: Node, sql: str, before: int) -> InvalidError:
    at = json.loads(tree["location"]) if "location" in tree else None
    shown = None if at is None else (at[0] - before, at[1])
    return InvalidError(
        f"the body of the function cannot be read: {tree['error_message']}",
        detail=f"in the body\n{picture(sql, shown)}",
    )


def _walk(node: Any) -> Iterator[Node]:
    return (n for n in _nodes(node) if "class" in n)


def _nodes(node: Any) -> Iterator[Node]:
    if isinstance(node, Mapping):
        yield node  # type: ignore[misc]
        for value in node.values():
            yield from _nodes(value)
    elif isinstance(node, list):
        for value in node:
            yield from _nodes(value)
