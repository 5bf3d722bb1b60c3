"""DuckDB as a parser: one database for each thread, in which no query of a user runs."""

from __future__ import annotations

import threading
from typing import Any

import duckdb

from millpond.kernels.duck import Equipment, connect
from millpond.sql.binding.types import CLOSED
from millpond.sql.dialects.library import equip
from millpond.sql.text.memoized_text import of_short_texts

_OWN = threading.local()


def parser() -> duckdb.DuckDBPyConnection:
    """Return a database for parsing only; each thread has its own."""
    found: duckdb.DuckDBPyConnection | None = getattr(_OWN, "parser", None)
    if found is None:
        found = _OWN.parser = connect(CLOSED)
        found.execute("set errors_as_json = true")
        found.execute("set lock_configuration = true")
    return found


def equipped_parser(sql: str) -> duckdb.DuckDBPyConnection:
    """Return the database for parsing, with the functions of dialects that a text calls."""
    con = parser()
    if getattr(_OWN, "equipped", None) is not con:
        _OWN.equipped, _OWN.equipment = con, Equipment(con)
    equip(con, _OWN.equipment, sql)
    return con


def ask(sql: str, params: list[Any] | None = None) -> Any:
    """Return the single value of a query that reads no relation."""
    con = equipped_parser(sql)
    (row,) = con.execute(sql, params).fetchall() if params else con.execute(sql).fetchall()
    return row[0]


@of_short_texts
def reads_only(sql: str) -> bool:
    """Is a text that DuckDB can parse a single query?"""
    found = parser().extract_statements(sql)
    return len(found) == 1 and found[0].type == duckdb.StatementType.SELECT


def syntax_error(sql: str) -> duckdb.Error | None:
    """What DuckDB says about a text that it cannot parse; None if it can."""
    try:
        parser().extract_statements(sql)
    except duckdb.Error as error:
        return error
    return None
