"""Translates a text of PostgreSQL to DuckDB's SQL.

Law: translating a translated text changes nothing.
An operator or function that `__pg` defines is called there; an ORDER BY says where NULLs are; a column
without a name has PostgreSQL's.
"""

from __future__ import annotations

from millpond.sql.dialects.library import is_public
from millpond.sql.dialects.merged_columns import order_merged_columns
from millpond.sql.dialects.parse_tree import Tree, nodes, parsed, printed
from millpond.sql.dialects.postgres.ambiguous_names import refuse_ambiguous_names
from millpond.sql.dialects.postgres.array_comparisons import rewritten_array_comparison
from millpond.sql.dialects.postgres.calls import rewritten_call
from millpond.sql.dialects.postgres.casts import called_as_type, rewrite_cast, rewrite_float, rewrite_literal
from millpond.sql.dialects.postgres.changes import translated_change
from millpond.sql.dialects.postgres.column_names import name_columns
from millpond.sql.dialects.postgres.concatenation import concatenated
from millpond.sql.dialects.postgres.conditions import check_conditions, checked_condition
from millpond.sql.dialects.postgres.documents import compare_documents
from millpond.sql.dialects.postgres.group_constants import cast_group_constants
from millpond.sql.dialects.postgres.row_comparisons import rewritten_comparison
from millpond.sql.dialects.postgres.set_functions import nested_in_select, read_as_values
from millpond.sql.dialects.postgres.set_operation_literals import type_set_operation
from millpond.sql.dialects.postgres.siblings import refuse_siblings
from millpond.sql.dialects.postgres.typed_columns import KnownColumns, type_operators
from millpond.sql.dialects.postgres.unknown_literals import typed_literals
from millpond.sql.dialects.typed_arguments import hoist_arguments

CATALOG = "__pg"


def translated(sql: str) -> str:
    """The same query or change in DuckDB's SQL; a text that needs no change is returned as it is."""
    tree = parsed(sql)
    if tree is None:
        return translated_change(sql, translated, translated_expression, translated_condition)
    found = list(nodes(tree))
    text = sql.encode()
    was_translated = f"{CATALOG}." in sql  # its queries in FROM may stand for functions, which read siblings
    if not was_translated:
        refuse_siblings(tree, text)
    named = [name_columns(node, text) for node in found if node.get("type") == "SELECT_NODE"]
    checked: list[bool] = []
    if not was_translated:
        refuse_ambiguous_names(tree, text)
        checked = [check_conditions(node) for node in found]
    changes = [nested_in_select(node, text) for node in found if node.get("type") == "SELECT_NODE"]
    changes += [type_set_operation(node, text) for node in found if node.get("type") == "SET_OPERATION_NODE"]
    changes.append(compare_documents(tree))
    if any(changes) or any(checked):
        found = list(nodes(tree))
    changes += checked
    changes += [typed_literals(node) for node in found]
    changes += [_rewritten(node, text) for node in found]
    changes.append(type_operators(tree, KnownColumns()))
    changes.append(read_as_values(found))
    changes += [cast_group_constants(node) for node in found if node.get("type") == "SELECT_NODE"]
    changes += [order_merged_columns(node) for node in found if node.get("type") == "SELECT_NODE"]
    if not any(named) and not any(changes):
        return sql
    hoist_arguments(tree)
    return printed(tree)


def translated_condition(sql: str) -> str:
    """The same condition of a change in DuckDB's SQL."""
    return translated_expression(sql, is_condition=True)


def translated_expression(sql: str, *, is_condition: bool = False) -> str:
    """The same expression, outside of a query, in DuckDB's SQL."""
    tree = parsed(f"SELECT {sql}")
    if tree is None:
        return sql
    text = f"SELECT {sql}".encode()
    changes: list[bool] = []
    if f"{CATALOG}." not in sql:
        changes = [check_conditions(node) for node in list(nodes(tree))]
        if is_condition:
            changes.append(_check_whole(tree["statements"][0]["node"]["select_list"]))
    changes.append(compare_documents(tree))
    found = list(nodes(tree))
    changes += [typed_literals(node) for node in found]
    changes += [_rewritten(node, text) for node in found]
    changes.append(type_operators(tree, KnownColumns()))
    if not any(changes):
        return sql
    hoist_arguments(tree)
    return printed(tree)[len("SELECT ") :]


def _check_whole(select_list: list[Tree]) -> bool:
    """Check the only expression of a list, which is a condition."""
    whole = select_list[0]
    select_list[0] = checked_condition(whole)
    return select_list[0] is not whole


def _rewritten(node: Tree, sql: bytes) -> bool:
    """Change one node in place; was there something to change?"""
    if called_as_type(node):
        return rewritten_call(node, sql) or rewrite_cast(node, sql) or True
    if rewritten_call(node, sql) or concatenated(node) or rewritten_comparison(node):
        return True
    if rewritten_array_comparison(node):
        return True
    kind = node.get("class")
    if kind == "FUNCTION" and len(node["qualified_name"]["path"]) == 1:
        return _called_there(node)
    if kind == "CAST":
        return rewrite_cast(node, sql)
    if kind == "TYPE":
        return rewrite_float(node, sql)
    if kind == "CONSTANT":
        return rewrite_literal(node)
    if node.get("null_order") == "ORDER_DEFAULT":
        last = node["type"] != "DESCENDING"
        node["null_order"] = "NULLS_LAST" if last else "NULLS_FIRST"
        return not last  # DuckDB's default, too
    return False


def _called_there(node: Tree) -> bool:
    name = node["function_name"].lower()
    if name == "count_star":  # DuckDB's parser writes count(*) so; with the word of the user, errors find it
        node.update(function_name="count", qualified_name={"path": ["count"]})
    if not is_public(CATALOG, name) or (name == "~" and len(node["arguments"]) == 1):  # ~ 5 inverts bits
        return False
    if name == "date_trunc" and any(map(_is_clock, nodes(node["arguments"]))):
        return False  # conditions of views understand DuckDB's own, which means the same for an instant
    path = [CATALOG, "main", name]
    node.update(catalog=CATALOG, schema="main", function_name=name, is_operator=False)
    node["qualified_name"] = {"path": path}
    return True


_CLOCK = frozenset(
    ["now", "proctime", "current_timestamp", "current_date", "localtimestamp", "transaction_timestamp"]
)


def _is_clock(node: Tree) -> bool:
    kind = node.get("class")
    name = node["function_name"] if kind == "FUNCTION" else None
    if kind == "COLUMN_REF":
        name = node["column_names"][-1]
    return name is not None and name.lower() in _CLOCK
