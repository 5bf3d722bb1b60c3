"""The names that PostgreSQL gives to columns of a query without a name.

Law: a column keeps the name of the column, function or type that it shows, and has the name `?column?` if it
shows none; the same rules as in PostgreSQL's `FigureColname`.
"""

from __future__ import annotations

import re

from millpond.sql.dialects.parse_tree import Tree

UNNAMED = "?column?"
_WORD = re.compile(rb"\w+")
_CALL = re.compile(rb'(?:"?\w+"?\s*\.\s*)*("?)(\w+)\1\s*\(')
_BARE = frozenset(
    (
        *("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "interval"),
        *("current_user", "session_user", "user", "current_role", "current_schema", "current_catalog"),
    )
)
# Functions whose name in PostgreSQL is not the word that is written.
_CALLED = {"trim": "btrim", "count_star": "count", "cast": ""}
# PostgreSQL's own names of types, by those of DuckDB and of the standard.
_TYPES = {
    "boolean": "bool", "tinyint": "int2", "smallint": "int2", "integer": "int4", "int": "int4",
    "bigint": "int8", "hugeint": "numeric", "float": "float4", "real": "float4", "double": "float8",
    "decimal": "numeric", "varchar": "varchar", "blob": "bytea", "timestamp with time zone": "timestamptz",
    "time with time zone": "timetz", "timestamp_ms": "timestamp", "timestamp_s": "timestamp",
    "timestamp_ns": "timestamp", "char": "bpchar", "character": "bpchar", "bit": "bit", "list": "array",
}  # fmt: skip


def name_columns(select: Tree, sql: bytes) -> bool:
    """Name the columns of one SELECT that have no name; was there one?"""
    changed = False
    for item in select["select_list"]:
        if item["alias"] or item["class"] in ("COLUMN_REF", "STAR", "POSITIONAL_REFERENCE"):
            continue
        if item["class"] == "OPERATOR" and item["type"] == "OPERATOR_UNPACK":
            continue
        if _shows_all_columns(item):
            continue
        item["alias"] = figured(item, sql)
        changed = True
    return changed


def _shows_all_columns(item: Tree) -> bool:
    """Does an expression hold COLUMNS(…), which makes several columns?"""
    stack: list[object] = [item]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if node.get("class") == "STAR":
                return True
            stack += [v for k, v in node.items() if k != "subquery"]
        elif isinstance(node, list):
            stack += node
    return False


def figured(item: Tree, sql: bytes) -> str:
    """The name of an expression as a column."""
    return _named(item, sql)[0] or UNNAMED


def _named(item: Tree | None, sql: bytes) -> tuple[str, int]:
    """A name and its strength: 2 of columns and functions, 1 of types, 0 for no name."""
    if item is None:
        return "", 0
    kind, sort = item["class"], item["type"]
    if kind == "COLUMN_REF":
        return item["column_names"][-1], 2
    if kind == "CAST":
        name, strength = _named(item["child"], sql)
        return (name, strength) if strength > 1 else (_type_name(item["type_expr"], sql), 1)
    if kind == "FUNCTION":
        return _function(item, sql)
    if kind == "WINDOW":
        return item["function_name"].removesuffix("_star"), 2
    if kind == "CASE":
        name, strength = _named(item["else_expr"], sql)
        written = _WORD.match(sql, _at(item))
        if written is not None and written[0].lower() in (b"coalesce", b"nullif"):
            return written[0].decode().lower(), 2
        return (name, strength) if strength > 1 else ("case", 1)
    if kind == "COLLATE":
        return _named(item["child"], sql)
    if kind == "SUBQUERY":
        return _subquery(item, sql)
    if kind == "OPERATOR":
        if sort == "OPERATOR_COALESCE":
            return "coalesce", 2
        if sort == "GROUPING_FUNCTION":
            return "grouping", 2
        if sort == "OPERATOR_NULLIF":
            return "nullif", 2
        if sort == "ARRAY_CONSTRUCTOR":
            return "array", 2
        if sort in ("ARRAY_EXTRACT", "ARRAY_SLICE"):
            return _named(item["children"][0], sql)
        if sort == "STRUCT_EXTRACT":
            return str(item["children"][1].get("literal", {}).get("text", "")), 2
    return "", 0


def _function(item: Tree, sql: bytes) -> tuple[str, int]:
    name = item["function_name"].lower()
    written = _CALL.match(sql, _at(item))
    if written is not None and not item["is_operator"]:
        said = written[2].decode().lower()
        return _CALLED.get(said, said), 2
    word = _WORD.match(sql, _at(item))
    if word is not None and word[0].decode(errors="replace").lower() in _BARE:
        return word[0].decode().lower(), 1 if word[0].lower() == b"interval" else 2
    if name in ("row", "list_value"):
        return ("row" if name == "row" else "array"), 2
    if name == "timezone":
        return name, 2
    return "", 0


def _subquery(item: Tree, sql: bytes) -> tuple[str, int]:
    if item["subquery_type"] == "EXISTS":
        return "exists", 2
    if item["subquery_type"] != "SCALAR":
        return "", 0
    if _WORD.match(sql, _at(item)) is not None and sql[_at(item) : _at(item) + 5].lower() == b"array":
        return "array", 2
    node = item["subquery"]["node"]
    while node["type"] == "SET_OPERATION_NODE":
        node = node["children"][0] if node.get("children") else node["left"]
    if node["type"] != "SELECT_NODE" or not node["select_list"]:
        return "", 0
    first = node["select_list"][0]
    return (first["alias"], 2) if first["alias"] else _named(first, sql)


def _type_name(item: Tree, sql: bytes) -> str:
    name = str(item.get("type_name", "")).lower()
    if name == "list":
        return _type_name(item["children"][0], sql) if item.get("children") else "array"
    if name == "varchar" and sql[_at(item) : _at(item) + 4].lower() in (b"char", b"bpch"):
        return "bpchar"
    return _TYPES.get(name, name)


def _at(item: Tree) -> int:
    found = int(item["query_location"])
    return found if found < 1 << 62 else 1 << 40
