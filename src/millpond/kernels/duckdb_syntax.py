"""DuckDB's own view of a text: its parsed tree, the facts of its errors, and which functions are unsteady."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import duckdb

from millpond.kernels.duck import binder, provided

# DuckDB reads these words as functions if no column has the name.
CLOCK_WORDS = frozenset(
    {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "today", "now"}
    | {"current_localtime", "current_localtimestamp"}  # DuckDB classifies them as consistent
)
# It only raises; DuckDB classifies it as volatile so that it is not evaluated ahead of time.
_HARMLESS = frozenset({"error"})

Node = dict[str, Any]


def ask(sql: str, parameters: list[Any]) -> Any:
    return binder().execute(sql, parameters).fetchall()[0][0]


def error_facts(error: duckdb.Error) -> dict[str, Any]:
    """What the binder reports about an error; not all errors come as JSON."""
    _, _, raw = str(error).partition(": ")
    try:
        found: dict[str, Any] = json.loads(raw)
        return found
    except json.JSONDecodeError:
        return {"exception_message": raw}


@lru_cache(maxsize=1)
def unsteady_functions() -> tuple[frozenset[str], frozenset[str]]:
    """Functions of the clock or the session, and functions that return another value at every call."""
    found = (
        binder().execute("select distinct lower(function_name), stability from duckdb_functions()").fetchall()
    )
    clock = frozenset(name for name, stability in found if stability == "CONSISTENT_WITHIN_QUERY")
    volatile = frozenset(name for name, stability in found if stability == "VOLATILE")
    return clock | CLOCK_WORDS, volatile - _HARMLESS


def is_steady(nodes: list[Node]) -> bool:
    """Whether none of these can return different values for equal rows."""
    _, volatile = unsteady_functions()
    called = {str(node.get("function_name", "")).lower() for node in nodes}
    return called.isdisjoint(volatile) and called.isdisjoint(map(str.lower, provided()))


def walk(node: Any) -> Iterator[Node]:
    """Every expression in a parsed tree, outermost first."""
    if isinstance(node, dict):
        if "class" in node:
            yield node
        for child in node.values():
            yield from walk(child)
    elif isinstance(node, list):
        for child in node:
            yield from walk(child)


def lowered(message: str) -> str:
    return message[:1].lower() + message[1:]
