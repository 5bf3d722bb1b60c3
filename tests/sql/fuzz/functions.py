"""Functions that random expressions call: in SQL for all engines, in Python for those that have it.

What an engine does not have is written in its own words (`as_plain_sql`): Python aggregates and functions that
give rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import millpond
from tests.sql.fuzz.calls import Call, closing, rewritten, with_tail

# The same text for a pond and for PostgreSQL; DuckDB calls them macros.
SQL = (
    "CREATE FUNCTION nearer(a INTEGER, b INTEGER) RETURNS INTEGER RETURN CASE WHEN abs(a) < abs(b) THEN a ELSE b END",
    "CREATE FUNCTION tagged(a INTEGER, t VARCHAR) RETURNS VARCHAR RETURN coalesce(t, '?') || '#' || CAST(a AS VARCHAR)",
    "CREATE FUNCTION beside(a INTEGER) RETURNS TABLE (at_ INTEGER) LANGUAGE SQL AS"
    " 'SELECT CAST(d.n + a AS INTEGER) FROM (VALUES (-1), (1)) AS d(n)'",
)
MACROS = (
    "CREATE MACRO nearer(a, b) AS CAST(CASE WHEN abs(a) < abs(b) THEN a ELSE b END AS INTEGER)",
    "CREATE MACRO tagged(a, t) AS coalesce(t, '?') || '#' || CAST(a AS VARCHAR)",
    "CREATE MACRO raised(a) AS CAST(a + 1 AS INTEGER)",
)


def _mixed(a: int, t: str) -> str:
    return f"{t}{a * 2}"


def _odd_one(a: int) -> int:
    return a % 3


def _raised(a: pa.Array) -> pa.Array:
    return pc.add(a, pa.scalar(1, pa.int32()))


def _pieces(t: str, n: int) -> Iterator[tuple[str, int]]:
    for place in range(min(n, 3)):
        yield f"{t}{place}", place


class _Spread:
    """The greatest less the least; no value can be taken back."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def accumulate(self, x: int) -> None:
        self.values.append(x)

    def finish(self) -> int | None:
        return max(self.values) - min(self.values) if self.values else None


class _Total:
    """A sum; values can be taken back."""

    def __init__(self) -> None:
        self.sum = 0

    def accumulate(self, x: int) -> None:
        self.sum += x

    def retract(self, x: int) -> None:
        self.sum -= x

    def finish(self) -> int:
        return self.sum


class _Chain:
    """What depends on the order."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def accumulate(self, x: str) -> None:
        self.parts.append(x)

    def finish(self) -> str:
        return "".join(self.parts)


PYTHON: dict[str, tuple[list[str], str, Callable[..., Any]]] = {  # those that DuckDB can call as they are
    "mixed": (["INTEGER", "VARCHAR"], "VARCHAR", _mixed),
    "odd_one": (["INTEGER"], "INTEGER", _odd_one),
}
AGGREGATES: dict[str, tuple[list[str], str, type]] = {
    "spread": (["INTEGER"], "INTEGER", _Spread),
    "total": (["INTEGER"], "BIGINT", _Total),
    "chain": (["VARCHAR"], "VARCHAR", _Chain),
}
_ALL = ("nearer", "tagged", "beside", "raised", "pieces", *PYTHON, *AGGREGATES)


def define(pond: millpond.Pond) -> None:
    """All of them, when a pond is new."""
    pond.sql(";\n".join(SQL))
    register(pond)


def register(pond: millpond.Pond) -> None:
    """Those in Python, whenever it is opened."""
    for name, (takes, gives, function) in [*PYTHON.items(), *AGGREGATES.items()]:
        pond.function(name, function, arguments=takes, returns=gives)
    pond.function("raised", _raised, arguments=["INTEGER"], returns="INTEGER", vectorised=True)
    pond.function(
        "pieces", _pieces, arguments=["VARCHAR", "INTEGER"], returns={"piece": "VARCHAR", "place": "INTEGER"}
    )


def are_called(text: str) -> bool:
    return any(f"{name}(" in text.lower() for name in _ALL)


def as_plain_sql(query: str, engine: str) -> str:
    """A query without what the engine has no functions for."""
    query = with_tail(query, "spread", lambda c, tail: f"({_of('max', c)}{tail} - {_of('min', c)}{tail})")
    query = with_tail(query, "total", lambda c, tail: f"coalesce({_of('sum', c)}{tail}, 0)")
    query = with_tail(query, "chain", lambda c, tail: f"coalesce({_chained(c)}{tail}, '')")
    query = rewritten(query, ["pieces"], _pieces_listed)
    if engine == "duckdb":
        query = rewritten(query, ["beside"], _beside_listed)
        query = _modes(query)
    return query


def _of(name: str, call: Call) -> str:
    return f"{name}({', '.join(call.parts)})"


def _chained(call: Call) -> str:
    what, order, by = call.parts[0].partition(" ORDER BY ")
    return f"string_agg({what}, ''{order}{', '.join([by, *call.parts[1:]])})"


def _pieces_listed(call: Call) -> str:
    text, number = call.parts
    listed = f"SELECT {text} || CAST(d.n AS VARCHAR), d.n FROM (VALUES (0), (1), (2)) AS d(n)"
    return f"({listed} WHERE d.n < {number} AND {text} IS NOT NULL)"


def _beside_listed(call: Call) -> str:
    return f"(SELECT CAST(d.n + {call.parts[0]} AS INTEGER) FROM (VALUES (-1), (1)) AS d(n))"


def _modes(query: str) -> str:
    """The least of the most frequent, which DuckDB gives only when it is told the order of rows."""
    said = "mode() within group ("
    while (at := query.lower().find(said)) >= 0:
        end, (order,) = closing(query, at + len(said) - 1)
        one = order[len("ORDER BY ") :]
        query = f"{query[:at]}mode({one} ORDER BY {one}){query[end:]}"
    return query
