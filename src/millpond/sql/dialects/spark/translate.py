"""Translates statements of Spark's SQL (4.3, ANSI mode) to DuckDB's SQL and calls of `__spark`."""

from __future__ import annotations

from millpond.sql.dialects.parse_tree import parsed as parsed_by_duckdb
from millpond.sql.dialects.parse_tree import printed
from millpond.sql.dialects.spark.queries import Queries
from millpond.sql.dialects.spark.syntax import parsed
from millpond.sql.dialects.typed_arguments import hoist_arguments


def translated(sql: str) -> list[str]:
    """The statements of a text in DuckDB's SQL; InvalidError if one has no meaning here."""
    return [_hoisted(Queries(sql).text(tree)) for tree in parsed(sql)]


def translated_expression(sql: str) -> str:
    """The same expression, outside of a query, in DuckDB's SQL."""
    query = f"select {sql}"
    (tree,) = parsed(query)
    (expression,) = tree.expressions
    return Queries(query).expressions.text(expression)


def _hoisted(text: str) -> str:
    """The same text with aggregates computed before functions whose overloads need their types."""
    tree = parsed_by_duckdb(text) if "__spark" in text else None
    return printed(tree) if tree is not None and hoist_arguments(tree) else text
