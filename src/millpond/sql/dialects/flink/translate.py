"""Translates queries and expressions of Flink's SQL to DuckDB's SQL and calls of `__flink` and `__spark`."""

from __future__ import annotations

import re

from sqlglot.errors import SqlglotError

from millpond.errors import InvalidError
from millpond.sql.dialects.flink.queries import FlinkQueries
from millpond.sql.dialects.flink.syntax import parsed
from millpond.sql.dialects.flink.window_calls import with_plain_calls
from millpond.sql.dialects.parse_tree import parsed as parsed_by_duckdb
from millpond.sql.dialects.parse_tree import printed
from millpond.sql.dialects.typed_arguments import hoist_arguments
from millpond.sql.refusal import pointing
from millpond.sql.text.time_windows import as_plain_sql

_REFUSED = {
    "MATCH_RECOGNIZE": "find patterns with a process: pond.stream_of(…).key_by(…).process(…)",
    "OPTIONS": "put the options into WITH (…) of CREATE TABLE",
    "STATE_TTL": "state is dropped where watermarks allow it; bound it by time in the query",
}


def translated(sql: str) -> str:
    """A query or change in DuckDB's SQL; InvalidError if it has no meaning here."""
    refuse_by_name(sql)
    plain = with_plain_calls(sql)
    try:
        (tree,) = parsed(plain)
    except SqlglotError as error:
        raise InvalidError(
            "this is not SQL that the dialect 'flink' can read", detail=_first_line(error)
        ) from error
    text = as_plain_sql(FlinkQueries(plain).text(tree))
    made = parsed_by_duckdb(text) if "__spark" in text or "__flink" in text else None
    return printed(made) if made is not None and hoist_arguments(made) else text


def translated_expression(sql: str) -> str:
    """The same expression, outside of a query."""
    query = f"SELECT {sql}"
    refuse_by_name(query)
    try:
        (tree,) = parsed(query)
    except SqlglotError as error:
        raise InvalidError(
            "this is not an expression that the dialect 'flink' can read", detail=_first_line(error)
        ) from error
    (expression,) = tree.expressions
    return FlinkQueries(query).expressions.text(expression)


def refuse_by_name(sql: str) -> None:
    """Refuse clauses and hints that are no part of the tree."""
    for word, hint in _REFUSED.items():
        pattern = rf"\b{word}\b" if word == "MATCH_RECOGNIZE" else rf"/\*\+[^*]*\b{word}\s*\("
        found = re.search(pattern, sql, re.IGNORECASE)
        if found is not None:
            at = (len(sql[: found.start()].encode()), len(found[0].encode()))
            raise pointing(f"{word} of the dialect 'flink' is not supported", sql, at, hint)


def _first_line(error: Exception) -> str:
    return re.sub(r"\x1b\[\d*m", "", str(error).split("\n")[0])
