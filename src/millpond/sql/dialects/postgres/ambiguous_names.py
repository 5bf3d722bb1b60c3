"""Names of columns that stand for two: DuckDB takes the first of them, PostgreSQL refuses.

Law: a column of a query in FROM or WITH is read by a name that no other column of that query has.
ORDER BY names one column of the query.
Columns behind `*` are not known from the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from millpond.errors import InvalidError
from millpond.sql.dialects.parse_tree import Tree, in_query
from millpond.sql.refusal import pointing

_HINT = "give one of the columns another name with AS"


def refuse_ambiguous_names(tree: Any, sql: bytes, known: Mapping[str, frozenset[str]] | None = None) -> None:
    """Refuse names that stand for two columns; `known` are the names that queries of WITH have twice."""
    known = known or {}
    if isinstance(tree, list):
        for one in tree:
            refuse_ambiguous_names(one, sql, known)
    if not isinstance(tree, dict):
        return
    for common in (tree.get("cte_map") or {}).get("map", ()):
        names = _names(common["value"]["query_node"], common["value"]["aliases"])
        known = {**known, common["key"].lower(): _twice(names)}
    if tree.get("type") == "SELECT_NODE":
        _check_orders(tree, sql)
        _check_columns(tree, sql, known)
    for value in tree.values():
        if isinstance(value, dict | list):
            refuse_ambiguous_names(value, sql, known)


def _check_orders(select: Tree, sql: bytes) -> None:
    items = [(_name(item), _key(item)) for item in select["select_list"]]
    for order in (order for modifier in select["modifiers"] for order in modifier.get("orders", ())):
        column = order["expression"]
        if column.get("class") == "COLUMN_REF" and len(column["column_names"]) == 1:
            name = column["column_names"][0]
            if len({key for one, key in items if one == name.lower()}) > 1:
                raise _refused(column, f'ORDER BY "{name}" is ambiguous', sql)


def _check_columns(select: Tree, sql: bytes, known: Mapping[str, frozenset[str]]) -> None:
    twice = dict(_relations(select["from_table"], known))
    if not any(twice.values()):
        return
    own = {_name(item) for item in select["select_list"]}
    for place in ("select_list", "where_clause", "group_expressions", "having", "modifiers"):
        shown = own if place == "modifiers" else ()  # ORDER BY may name columns of the query itself
        for node in in_query(select[place]):
            if node.get("class") != "COLUMN_REF" or len(node["column_names"]) > 2:
                continue
            *table, name = (one.lower() for one in node["column_names"])
            relations = [twice.get(table[0], frozenset())] if table else twice.values()
            if any(name in names for names in relations) and (table or name not in shown):
                message = f'column reference "{node["column_names"][-1]}" is ambiguous'
                raise _refused(node, message, sql)


def _relations(
    table: Tree | None, known: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, frozenset[str]]]:
    """The relations of FROM that are queries, each with the names that it has twice."""
    if table is None:
        return
    if table["type"] == "JOIN":
        yield from _relations(table["left"], known)
        yield from _relations(table["right"], known)
    elif table["type"] == "SUBQUERY":
        yield table["alias"].lower(), _twice(_names(table["subquery"]["node"], table["column_name_alias"]))
    elif table["type"] == "BASE_TABLE" and not table["column_name_alias"] and not table["schema_name"]:
        name = table["table_name"].lower()
        yield (table["alias"] or name).lower(), known.get(name, frozenset())


def _names(query: Tree, given: list[str]) -> list[str]:
    """The names of a query's columns before the first `*`, some of them given by an alias."""
    first = query
    while first["type"] == "SET_OPERATION_NODE":
        first = (first["children"] or [first["left"]])[0]
    names: list[str] = []
    for item in first["select_list"] if first["type"] == "SELECT_NODE" else ():
        if item["class"] == "STAR":
            break
        names.append(_name(item))
    return [name.lower() for name in given] + names[len(given) :]


def _name(item: Tree) -> str:
    names = item.get("column_names") or [""]
    return str(item["alias"] or names[-1]).lower()


def _twice(names: list[str]) -> frozenset[str]:
    return frozenset(name for name, count in Counter(names).items() if name and count > 1)


def _key(item: Tree) -> str:
    """What an expression says, without its place in the text and its name."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items() if not k.startswith("query_location")}
        return [plain(one) for one in value] if isinstance(value, list) else value

    return repr(plain({**item, "alias": ""}))


def _refused(node: Tree, message: str, sql: bytes) -> InvalidError:
    at = (node["query_location"], node["query_location_length"])
    return pointing(message, sql.decode(), at if at[0] < len(sql) else None, _HINT)
