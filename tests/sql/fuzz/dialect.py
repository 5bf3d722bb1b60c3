"""A query of ours as an engine without windows of time can answer it: they are written out, of rows and of watermarks.

A window over a stream that closes shows only what the least of the watermarks has passed: `watermarks` is a
table beside the others, with a row for each stream that has one (law 1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_CALL = re.compile(r"\b(TUMBLE|HOP|SESSION)\(([^()]*)\)")
_LENGTH = re.compile(r"INTERVAL '(\d+)' (\w+)")  # as sqlglot writes it
WATERMARKS = "CREATE TABLE watermarks (name VARCHAR, reached TIMESTAMP)"


def streams_of(query: str) -> list[str]:
    """What is read through windows."""
    return sorted({m[2].split(", ")[0] for m in _CALL.finditer(query)})


def written(query: str, engine: str, closes: bool = False) -> str:
    """The text for an engine; with `closes` only windows that are over are in it."""
    query = _LENGTH.sub(r"INTERVAL '\1 \2'", query)
    waited = streams_of(query) if closes else []
    return _CALL.sub(lambda m: _window(m[1], m[2].split(", "), engine, waited), query)


def _window(kind: str, parts: Sequence[str], engine: str, waited: Sequence[str]) -> str:
    rows, time, first = parts[:3]
    timed = f"{rows} WHERE {time} IS NOT NULL"
    if kind == "TUMBLE":
        start = _bucket(first, time, engine)
        inner = f"SELECT *, {start} AS window_start, {start} + {first} AS window_end FROM {timed}"
    elif kind == "HOP":
        size = parts[3]
        starts = f"generate_series({_bucket(first, f'q.{time}', engine)} - {size}, q.{time}, {first})"
        starts = f"unnest({starts})" if engine == "duckdb" else starts
        inner = (
            f"SELECT q.*, s.window_start, s.window_start + {size} AS window_end FROM (SELECT * FROM {timed}) AS q"
            f" CROSS JOIN LATERAL {starts} AS s(window_start) WHERE s.window_start + {size} > q.{time}"
        )
    else:
        inner = _sessions(timed, time, first, parts[3:])
    return f"(SELECT * FROM ({inner}) AS w WHERE {_over(kind, waited)})"


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
