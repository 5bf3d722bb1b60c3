"""Queries in FROM without LATERAL that name what stands before them in the same FROM.

DuckDB lets every query in FROM read the relations before it; PostgreSQL only those after LATERAL.

Law: a query in FROM reads its own relations, those of queries around it, and after LATERAL those before it.
What a column without a table belongs to is not known from the text, unless the query has no relation at all;
nor is it for the arguments of a function in FROM.
"""

from __future__ import annotations

from typing import Any

from millpond.errors import InvalidError
from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.refusal import pointing

_HINT = "write LATERAL before a query in FROM that reads relations before it"
_WORDS = frozenset(  # that DuckDB reads as columns
    [
        *("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "current_role"),
        *("current_user", "session_user", "user", "current_schema", "current_catalog", "default"),
    ]
)
_LISTED = ("select_list", "where_clause")  # where a column cannot be an alias of the query


def refuse_siblings(tree: Tree, sql: bytes) -> None:
    """Refuse a query in FROM that reads relations beside it."""
    if b"(" in sql and not _is_single(tree):
        _SiblingCheck(sql).part(tree, frozenset(), True)


def _is_single(tree: Tree) -> bool:
    """Is there no join at all?"""
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if node.get("type") == "JOIN":
                return False
            stack += node.values()
        elif isinstance(node, list):
            stack += node
    return True


class _SiblingCheck:
    def __init__(self, sql: bytes) -> None:
        self.sql = sql

    def part(self, node: Any, hidden: frozenset[str], known: bool) -> None:
        """Check a part of a query; is it `known` that there are no relations but `hidden` ones?"""
        if isinstance(node, list):
            for one in node:
                self.part(one, hidden, known)
        elif not isinstance(node, dict):
            return
        elif node.get("type") == "SELECT_NODE":
            self._select(node, hidden, known)
        elif node.get("class") == "COLUMN_REF":
            self._column(node, hidden, known)
        else:
            inside = known and node.get("class") != "LAMBDA"
            for value in node.values():
                if isinstance(value, dict | list):
                    self.part(value, hidden, inside)

    def _select(self, node: Tree, hidden: frozenset[str], known: bool) -> None:
        table = node["from_table"]
        self._from(table, frozenset(), hidden, known)
        own = _names(table)
        alone = known and (table is None or table["type"] == "EMPTY")
        for key, value in node.items():
            if key == "cte_map":
                self.part(value, hidden, known)
            elif key != "from_table" and isinstance(value, dict | list):
                self.part(value, hidden - own, alone and key in _LISTED)

    def _from(self, table: Tree | None, before: frozenset[str], hidden: frozenset[str], known: bool) -> None:
        if table is None:
            return
        if table["type"] == "JOIN":
            self._from(table["left"], before, hidden, known)
            self._from(table["right"], before | _names(table["left"]), hidden, known)
            self.part(table.get("condition"), hidden - _names(table), False)
        elif table["type"] in ("SUBQUERY", "EXPRESSION_LIST"):
            apart = before and not self._is_lateral(table)
            self.part(
                {key: value for key, value in table.items() if key != "type"},
                hidden | before if apart else hidden - before,
                known and (bool(apart) or not before),
            )
        else:  # TUMBLE(bid, …) and its relatives name relations, which the parser takes for columns
            known = known and not before and table["type"] != "TABLE_FUNCTION"
            self.part({k: v for k, v in table.items() if k != "type"}, hidden - before, known)

    def _is_lateral(self, table: Tree) -> bool:
        at = table["query_location"]
        return at > len(self.sql) or self.sql[:at].rstrip(b" \t\r\n(").lower().endswith(b"lateral")

    def _column(self, node: Tree, hidden: frozenset[str], known: bool) -> None:
        names = node["column_names"]
        if not hidden:
            return
        if len(names) > 1 and names[0].lower() in hidden:
            raise self._refused(node, f'invalid reference to FROM-clause entry for table "{names[0]}"')
        if len(names) == 1 and known and names[0].lower() not in _WORDS:
            raise self._refused(node, f'column "{names[0]}" does not exist')

    def _refused(self, node: Tree, message: str) -> InvalidError:
        at = (node["query_location"], node["query_location_length"])
        return pointing(message, self.sql.decode(), at if at[0] <= len(self.sql) else None, _HINT)


def _names(table: Tree | None) -> frozenset[str]:
    """The names under which a part of FROM gives relations."""
    if table is None:
        return frozenset()
    if table.get("type") == "JOIN":
        return _names(table["left"]) | _names(table["right"])
    function = table.get("function") or {}
    name = table.get("alias") or table.get("table_name") or function.get("function_name") or ""
    return frozenset((name.lower(),)) if name else frozenset()
