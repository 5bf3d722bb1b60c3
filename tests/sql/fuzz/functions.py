"""Functions that random expressions call: in SQL for all engines, in Python for those that have it."""

from __future__ import annotations

import millpond

# The same text for a pond and for PostgreSQL; DuckDB calls them macros.
SQL = (
    "CREATE FUNCTION nearer(a INTEGER, b INTEGER) RETURNS INTEGER RETURN CASE WHEN abs(a) < abs(b) THEN a ELSE b END",
    "CREATE FUNCTION tagged(a INTEGER, t VARCHAR) RETURNS VARCHAR RETURN coalesce(t, '?') || '#' || CAST(a AS VARCHAR)",
)
MACROS = (
    "CREATE MACRO nearer(a, b) AS CAST(CASE WHEN abs(a) < abs(b) THEN a ELSE b END AS INTEGER)",
    "CREATE MACRO tagged(a, t) AS coalesce(t, '?') || '#' || CAST(a AS VARCHAR)",
)


def _mixed(a: int, t: str) -> str:
    return f"{t}{a * 2}"


def _odd_one(a: int) -> int:
    return a % 3


PYTHON = {
    "mixed": (["INTEGER", "VARCHAR"], "VARCHAR", _mixed),
    "odd_one": (["INTEGER"], "INTEGER", _odd_one),
}


def define(pond: millpond.Pond) -> None:
    """All of them, when a pond is new."""
    pond.sql(";\n".join(SQL))
    register(pond)


def register(pond: millpond.Pond) -> None:
    """Those in Python, whenever it is opened."""
    for name, (takes, gives, function) in PYTHON.items():
        pond.function(name, function, arguments=takes, returns=gives)


def are_called(text: str) -> bool:
    return any(f"{name}(" in text for name in ("nearer", "tagged", *PYTHON))
