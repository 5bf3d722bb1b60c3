"""Computes the windows of TUMBLE, HOP, CUMULATE, CALENDAR and SESSION in a query that is read.

`text/time_windows.py` writes a window function as a projection whose columns are marked by their names.  A
view turns it into a step; a query computes it here, in DuckDB's SQL.

Law: over the same rows a query gives the rows that a view of windows without EMIT has.  A row without a time
is in no window.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import InvalidError
from millpond.sql.binding.types import quoted
from millpond.sql.dialects.parse_tree import Tree, nodes, parsed, printed
from millpond.sql.text.time_windows import END, KEY, KIND, MARK, OFFSET, SIZE, SLIDE, START, UNIT, ZONE

_ROWS = f"{MARK}rows"  # stands for the marked projection
_HELP = {name: quoted(f"{MARK}{name}") for name in ("width", "whole", "back", "place", "first", "session")}
_S, _E = quoted(START), quoted(END)


def with_windows(sql: str) -> str:
    """Return a query whose marked projections compute their windows; one without any stays as it is."""
    if MARK not in sql:
        return sql
    tree = parsed(sql)
    if tree is None:
        return sql  # the reader reports what is wrong
    for node in [n for n in nodes(tree) if n.get("type") == "SELECT_NODE" and KIND in _aliases(n)]:
        found = _aliases(node)
        kind = next(str(n["literal"]["text"]) for n in nodes(found[KIND]) if "literal" in n)
        template = parsed(_computed(kind, list(found)))
        assert template is not None, kind
        made: Tree = template["statements"][0]["node"]
        (inner,) = (n for n in nodes(made) if n.get("type") == "SELECT_NODE" and _ROWS in _aliases(n))
        kept = dict(node)
        inner.clear()
        inner.update(kept)
        node.clear()
        node.update(made)
    return printed(tree)


def computes_windows(sql: str) -> bool:
    """Does a query compute windows, so that it is longer than what the user wrote?"""
    return MARK in sql


@contextmanager
def errors_of_windows(sql: str) -> Iterator[None]:
    """In a query that computes windows, say that a column is no time."""
    try:
        yield
    except InvalidError as error:
        if not computes_windows(sql) or "epoch_us(" not in error.message:
            raise
        raise InvalidError("the time of a window must be a timestamp", hint="cast it") from error


def _aliases(node: Tree) -> dict[str, Tree]:
    return {e["alias"]: e for e in node["select_list"]}


def _micros(name: str) -> str:
    """The microseconds of the length of a window."""
    i = quoted(name)
    return (
        f"CASE WHEN datepart('year', {i}) * 12 + datepart('month', {i}) <> 0"
        " THEN error('the length of a window must be of days or less')"
        f" WHEN epoch_us({i}) < 1 THEN error('the length of a window must be positive')"
        f" ELSE epoch_us({i}) END"
    )


def _computed(kind: str, given: list[str]) -> str:
    """Return the query that computes windows over the marked rows, which it calls `_ROWS`."""
    rows = f"(SELECT 1 AS {quoted(_ROWS)})"
    timed = f"FROM {rows} WHERE {_S} IS NOT NULL"
    width, whole, back, place = (_HELP[n] for n in ("width", "whole", "back", "place"))
    if kind == "session":
        return _sessions(timed, [quoted(n) for n in given if n.startswith(KEY)])
    if kind == "calendar":
        zone = quoted(ZONE) if ZONE in given else "'UTC'"
        local = f"date_trunc({quoted(UNIT)}, CAST({_S} AS TIMESTAMPTZ) AT TIME ZONE {zone})"
        after = f"{local} + CAST('1 ' || {quoted(UNIT)} AS INTERVAL)"
        at = f"epoch_us({_S})"
        start, end = (
            f"{_S} + to_microseconds(epoch_us(({t}) AT TIME ZONE {zone}) - {at})" for t in (local, after)
        )
        return f"SELECT * REPLACE ({start} AS {_S}, {end} AS {_E}) {timed}"
    offset = f"epoch_us({quoted(OFFSET)})" if OFFSET in given else "0"
    aligned = whole if kind == "cumulate" else width  # what the start of a window is a multiple of
    slide = SIZE if kind == "tumble" else SLIDE
    wide = f"SELECT *, {_micros(slide)} AS {width}, {_micros(SIZE)} AS {whole} {timed}"
    behind = f"((epoch_us({_S}) - {offset}) % {aligned} + {aligned}) % {aligned}"
    placed = f"SELECT *, {behind} AS {back} FROM ({wide})"
    if kind == "tumble":
        placed = f"SELECT *, 0 AS {place} FROM ({placed})"
        start, length = f"{_S} - to_microseconds({back})", whole
    elif kind == "hop":
        count = f"greatest(({whole} - {back} + {width} - 1) // {width}, 0)"
        placed = f"SELECT *, unnest(range({count})) AS {place} FROM ({placed})"
        start, length = f"{_S} - to_microseconds({back} + {place} * {width})", whole
    else:
        odd = "error('the size of CUMULATE must be a multiple of its step')"
        last = f"CASE WHEN {whole} % {width} <> 0 THEN {odd} ELSE {whole} // {width} + 1 END"
        placed = f"SELECT *, unnest(range({back} // {width} + 1, {last})) AS {place} FROM ({placed})"
        start, length = f"{_S} - to_microseconds({back})", f"{place} * {width}"
    return (
        f"SELECT * EXCLUDE ({width}, {whole}, {back}, {place})"
        f" REPLACE ({start} AS {_S}, {start} + to_microseconds({length}) AS {_E}) FROM ({placed})"
    )


def _sessions(timed: str, keys: list[str]) -> str:
    width, first, session = (_HELP[n] for n in ("width", "first", "session"))
    by = f"PARTITION BY {', '.join(keys)}" if keys else ""
    wide = f"SELECT *, {_micros(SIZE)} AS {width} {timed}"
    since = f"epoch_us({_S}) - epoch_us(lag({_S}) OVER ({by} ORDER BY {_S}))"
    begun = f"SELECT *, CASE WHEN {since} <= {width} THEN 0 ELSE 1 END AS {first} FROM ({wide})"
    up_to = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    numbered = f"SELECT *, sum({first}) OVER ({by} ORDER BY {_S} {up_to}) AS {session} FROM ({begun})"
    own = f"PARTITION BY {', '.join([*keys, session])}"
    return (
        f"SELECT * EXCLUDE ({width}, {first}, {session}) REPLACE (min({_S}) OVER ({own}) AS {_S},"
        f" max({_S}) OVER ({own}) + to_microseconds({width}) AS {_E}) FROM ({numbered})"
    )
