"""A query of ours as an engine without ponds can answer it.

Windows of time are written out, of rows and of watermarks: a window over a stream that closes shows only what
the least of the watermarks has passed; `watermarks` is a table beside the others, with a row for each stream
that has one (law 1).  A join as of PROCTIME() is one by the tick: beside a table that is joined so stands what
it held at every tick (`…_at`), beside a stream at which tick each row came (`…_came`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.sql.fuzz.calls import Call, calls, rewritten
from tests.sql.fuzz.functions import as_plain_sql

WINDOWS = ("TUMBLE", "HOP", "SESSION")
WATERMARKS = "CREATE TABLE watermarks (name VARCHAR, reached TIMESTAMP)"
AS_OF_NOW = "FOR SYSTEM_TIME AS OF PROCTIME()"
_LENGTH = re.compile(r"INTERVAL '(\d+)' (\w+)")  # as sqlglot writes it
_NAMED = re.compile(r"\b(t\d+) AS ")
_LOOKUP = re.compile(
    rf"\b(\w+) AS (\w+) ((?:LEFT )?JOIN) (\w+) {re.escape(AS_OF_NOW)} AS (\w+) ON ", re.IGNORECASE
)


def streams_of(query: str) -> list[str]:
    """What is read through windows, by itself or in a query."""
    read = [call.parts[0] for call in calls(query, WINDOWS)]
    return sorted({name for rows in read for name in (_NAMED.findall(rows) if " " in rows else [rows])})


def looked_up(query: str) -> list[tuple[str, str]]:
    """(stream, table) of the joins as of PROCTIME()."""
    return [(m[1], m[4]) for m in _LOOKUP.finditer(query)]


def written(query: str, engine: str, closes: bool = False, tick: int = 0) -> str:
    """The text for an engine; with `closes` only windows that are over are in it.

    `tick` is when a view of it was made: rows that were there before came to it then.
    """
    query = _LENGTH.sub(r"INTERVAL '\1 \2'", query)
    waited = streams_of(query) if closes else []
    query = rewritten(query, WINDOWS, lambda call: _window(call, engine, waited))
    query = _LOOKUP.sub(lambda m: _looked_up(m, tick), query)
    return as_plain_sql(query, engine)


def _looked_up(found: re.Match[str], tick: int) -> str:
    left, alias, join, right, other = found.groups()
    when = f"{other}.tick = greatest({alias}.tick, {tick})"
    return f"{left}_came AS {alias} {join} {right}_at AS {other} ON {when} AND "


def _window(call: Call, engine: str, waited: Sequence[str]) -> str:
    rows, time, first = call.parts[:3]
    timed = f"{rows}{' AS rows_' if rows.startswith('(') else ''} WHERE {time} IS NOT NULL"
    if call.name == "TUMBLE":
        start = _bucket(first, time, engine)
        inner = f"SELECT *, {start} AS window_start, {start} + {first} AS window_end FROM {timed}"
    elif call.name == "HOP":
        size = call.parts[3]
        starts = f"generate_series({_bucket(first, f'q.{time}', engine)} - {size}, q.{time}, {first})"
        starts = f"unnest({starts})" if engine == "duckdb" else starts
        inner = (
            f"SELECT q.*, s.window_start, s.window_start + {size} AS window_end FROM (SELECT * FROM {timed}) AS q"
            f" CROSS JOIN LATERAL {starts} AS s(window_start) WHERE s.window_start + {size} > q.{time}"
        )
    else:
        inner = _sessions(timed, time, first, call.parts[3:])
    return f"(SELECT * FROM ({inner}) AS w WHERE {_over(call.name, waited)})"


def _bucket(length: str, time: str, engine: str) -> str:
    if engine == "duckdb":
        return f"time_bucket({length}, {time})"
    return f"date_bin({length}, {time}, TIMESTAMP '2000-01-03')"


def _sessions(timed: str, time: str, gap: str, keys: Sequence[str]) -> str:
    """A row more than the gap after the one before it begins a session."""
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    lone = f"CASE WHEN {time} - lag({time}) OVER ({by}ORDER BY {time}) <= {gap} THEN 0 ELSE 1 END"
    begun = f"SELECT *, {lone} AS begins FROM {timed}"
    counted = (
        f"SELECT *, sum(begins) OVER ({by}ORDER BY {time} RANGE UNBOUNDED PRECEDING) AS n FROM ({begun}) AS b"
    )
    of = f"OVER (PARTITION BY {', '.join([*keys, 'n'])})"
    return f"SELECT *, min({time}) {of} AS window_start, max({time}) {of} + {gap} AS window_end FROM ({counted}) AS c"


def _over(kind: str, waited: Sequence[str]) -> str:
    if not waited:
        return "TRUE"
    names = ", ".join(f"'{name}'" for name in waited)
    least = f"SELECT min(reached) FROM watermarks WHERE name IN ({names}) HAVING count(*) = {len(waited)}"
    return f"w.window_end {'<' if kind == 'SESSION' else '<='} ({least})"
