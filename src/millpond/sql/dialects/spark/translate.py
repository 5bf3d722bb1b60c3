"""Translates statements of Spark's SQL (4.3, in either mode) to DuckDB's SQL and calls of `__spark`."""

from __future__ import annotations

import re

from millpond.sql.dialects.merged_columns import order_merged_columns
from millpond.sql.dialects.parse_tree import nodes, printed
from millpond.sql.dialects.parse_tree import parsed as parsed_by_duckdb
from millpond.sql.dialects.spark.queries import Queries
from millpond.sql.dialects.spark.syntax import parsed
from millpond.sql.dialects.spark.without_ansi import LaxQueries
from millpond.sql.dialects.typed_arguments import hoist_arguments
from millpond.sql.refusal import pointing

_CAST_LITERAL = re.compile(
    r"""--[^\n]*|/\*.*?\*/|`[^`]*`|(?P<typed>\b(?:DATE|TIMESTAMP(?:_NTZ|_LTZ)?)\s*'[^']*'\s*::)|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""",
    re.IGNORECASE | re.DOTALL,
)


def _refuse_casts_of_literals(sql: str) -> None:
    """`DATE'…'::STRING` would be read as a cast of the text."""
    for found in _CAST_LITERAL.finditer(sql):
        if found["typed"]:
            at = (len(sql[: found.start()].encode()), len(found[0].encode()))
            raise pointing(":: behind a literal with a type is not supported", sql, at, "write CAST(… AS …)")


def translated(sql: str, *, ansi: bool = True) -> list[str]:
    """The statements of a text in DuckDB's SQL; InvalidError if one has no meaning here."""
    _refuse_casts_of_literals(sql)
    writer = Queries if ansi else LaxQueries
    return [_finished(writer(sql).text(tree)) for tree in parsed(sql)]


def translated_expression(sql: str, *, ansi: bool = True) -> str:
    """The same expression, outside of a query, in DuckDB's SQL."""
    _refuse_casts_of_literals(sql)
    query = f"select {sql}"
    (tree,) = parsed(query)
    (expression,) = tree.expressions
    return (Queries if ansi else LaxQueries)(query).expressions.text(expression)


def _finished(text: str) -> str:
    """The same text with merged columns first, and aggregates computed before calls that need their types."""
    if "__spark" not in text and "USING" not in text:
        return text
    tree = parsed_by_duckdb(text)
    if tree is None:
        return text
    ordered = [order_merged_columns(node) for node in list(nodes(tree)) if node.get("type") == "SELECT_NODE"]
    return printed(tree) if hoist_arguments(tree) or any(ordered) else text
