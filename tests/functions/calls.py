"""Calls of every function over edge values: each argument takes all its values while the others keep theirs,
and a few rows are drawn by chance from one seed."""

from __future__ import annotations

import itertools
import random
import zlib

from tests.functions.arguments import ARGUMENTS, CALLS, NUMBER_FORMATS, SKIPPED, TIME_FORMATS
from tests.functions.calls_rows import ROWS
from tests.functions.inventory import Callable_
from tests.functions.values import VALUES

CALLS_MAX = 36
OPERATOR_CALLS_MAX = 12

COLUMNS = {
    "smallint": "i::smallint",
    "integer": "i",
    "bigint": "b",
    "numeric": "d",
    "real": "f::real",
    "double precision": "f",
    "text": "t",
    "character": "t::char(3)",
    "boolean": "o",
    "interval": "v",
    "date": "day",
    "timestamp without time zone": "day::timestamp",
    "timestamp with time zone": "day::timestamptz",
    "time without time zone": "TIME '10:00' + v",
    "time with time zone": "(TIME '10:00' + v)::timetz",
    "bytea": "t::bytea",
    "anyelement": "i",
    "anynonarray": "i",
    "anyarray": "ARRAY[i, n]",
    '"any"': "i",
    "anycompatible": "i",
}


_BOTH = ("rank", "dense_rank", "percent_rank", "cume_dist")  # window functions and aggregates


def calls_of(one: Callable_) -> list[str]:
    """The queries that ask about one function; none if only a page can speak about it."""
    if one.signature in SKIPPED or one.name in SKIPPED:
        return []
    if one.name in CALLS:
        within = {"aggregate": " WITHIN ", "window": " OVER "}.get(one.kind, "") if one.name in _BOTH else ""
        found = [query for query in CALLS[one.name] if within in query]
        if one.name == "percentile_cont":
            spans, several = "interval" in one.arguments[1], one.arguments[0].endswith("[]")
            found = [q for q in found if ("ORDER BY v" in q) is spans and ("(ARRAY[" in q) is several]
        return found
    if one.kind == "aggregate":
        return _aggregate(one)
    if one.kind == "window":
        return _window(one)
    rows = _rows(one)
    if one.kind == "operator":
        shown = [f"{r[0]} {one.name} {r[1]}" if len(r) == 2 else f"{one.name} {r[0]}" for r in rows]
        return [f"SELECT {text}" for text in shown]
    if one.kind == "set":
        return [f"SELECT * FROM {one.name}({', '.join(r)})" for r in rows]
    return [f"SELECT {one.name}({', '.join(r)})" for r in rows]


def _rows(one: Callable_) -> list[tuple[str, ...]]:
    types = list(one.arguments)
    if "VARIADIC" in one.written:
        types = [*types[:-1], *[types[-1].removesuffix("[]")] * 3]
    if types.count("anyarray") > 1:  # of one type
        types = ["anycompatiblearray" if kind == "anyarray" else kind for kind in types]
    pools = [_pool(one.name, place, kind) for place, kind in enumerate(types)]
    if one.name == "to_char":
        pools[1] = TIME_FORMATS if types[0].startswith(("timestamp", "interval")) else NUMBER_FORMATS
    if not pools:
        return [()]
    plain = tuple(pool[0] for pool in pools)
    found = {plain: None}
    for place, pool in enumerate(pools):
        for value in pool:
            found[(*plain[:place], value, *plain[place + 1 :])] = None
    every = list(itertools.islice(itertools.product(*pools), 5000))
    chance = random.Random(zlib.crc32(one.signature.encode()))
    limit = OPERATOR_CALLS_MAX if one.kind == "operator" else CALLS_MAX
    for row in chance.sample(every, min(len(every), limit)):
        if len(found) >= limit:
            break
        found[row] = None
    senseless = ("nonsense", "nowhere")  # PostgreSQL looks at infinity first
    if one.kind == "operator":
        found = dict.fromkeys(list(found)[:limit])
    return [
        row for row in found if not ("infinity" in str(row) and any(word in str(row) for word in senseless))
    ]


def _pool(name: str, place: int, kind: str) -> tuple[str, ...]:
    for key in ((name, place, kind), (name, place)):
        if key in ARGUMENTS:
            return ARGUMENTS[key]
    return VALUES.get(kind) or VALUES["any" + "array"]


def _aggregate(one: Callable_) -> list[str]:
    given = ", ".join(COLUMNS.get(kind, "i") for kind in one.arguments)
    if one.name == "string_agg":
        given = "t::bytea, '\\x2c'::bytea ORDER BY n" if "bytea" in one.arguments else "t, ',' ORDER BY n"
    elif one.name in ("array_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg"):
        given = ("n, " if "object" in one.name else "") + given.split(", ")[-1] + " ORDER BY n"
    call = f"{one.name}({given or '*'})"
    return [
        f"SELECT {call} FROM {ROWS}",
        f"SELECT {call} FILTER (WHERE n < 3) FROM {ROWS}",
        f"SELECT {call} FROM {ROWS} WHERE n > 100",
        f"SELECT {call} FROM {ROWS} WHERE n = 3",
        f"SELECT o, {call} FROM {ROWS} GROUP BY o ORDER BY o",
    ]


def _window(one: Callable_) -> list[str]:
    given = ["i", "2", "-1"][: len(one.arguments)]
    if one.name == "ntile":
        given = ["2"]
    call = f"{one.name}({', '.join(given)})"
    return [
        f"SELECT n, {call} OVER (ORDER BY n) FROM {ROWS} ORDER BY n",
        f"SELECT n, {call} OVER (PARTITION BY o ORDER BY b DESC, n) FROM {ROWS} ORDER BY n",
    ]
