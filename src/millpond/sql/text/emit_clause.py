"""The EMIT clause of CREATE MATERIALIZED VIEW and CREATE SINK: when the windows of a query are emitted.

    EMIT ON WINDOW CLOSE
    EMIT [EARLY EVERY how_often] [LATE EVERY how_often] [ALLOWED LATENESS interval]
         [RETRACTING | ACCUMULATING | DISCARDING]

`how_often` is an interval of processing time, or a number of rows: `INTERVAL '5 seconds'`, `100 ROWS`.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from millpond.errors import InternalError
from millpond.flow.window_steps import Mode
from millpond.kernels.triggers import AfterCount, AfterDelay, AfterWatermark, Repeatedly, Trigger
from millpond.sql.text.duckdb_parser import ask
from millpond.sql.text.parse import SqlFragment, Words

_CLOSE = ("EMIT", "ON", "WINDOW", "CLOSE")
_MODES: dict[str, Mode] = {
    "RETRACTING": "retracting",
    "ACCUMULATING": "accumulating",
    "DISCARDING": "discarding",
}
_NEXT = ("EARLY", "LATE", "ALLOWED", *_MODES)
_USAGE = (
    "EMIT EARLY EVERY INTERVAL '5 seconds' LATE EVERY 1 ROW ALLOWED LATENESS INTERVAL '1 hour' RETRACTING,"
    " or EMIT ON WINDOW CLOSE"
)


@dataclass(frozen=True)
class Emission:
    """When a view emits its windows; by default it shows them while they fill."""

    on_close: bool = False
    trigger: AfterWatermark | None = None
    lateness_us: int = 0
    mode: Mode = "retracting"
    clause: str = "EMIT ON WINDOW CLOSE"  # its name in errors


BEFORE_THEY_CLOSE = Emission()


def take_emission(body: SqlFragment) -> tuple[SqlFragment, Emission]:
    """Return the query without its EMIT clause, and what the clause says.

    >>> from millpond.sql.text.parse import statements
    >>> body, emission = take_emission(statements("select 1 emit early every 3 rows", "postgres")[0])
    >>> body.sql, emission.trigger
    ('select 1', AfterWatermark(early=AfterCount(n=3), late=None))
    """
    if len(body) > 4 and body.has(len(body) - 4, *_CLOSE):
        return body.part(0, len(body) - 4), Emission(on_close=True)
    for n in body.outside(1):
        if body.has(n, *_CLOSE) and body.word(n + 4) in _NEXT:
            body.fail(
                "nothing can follow EMIT ON WINDOW CLOSE: it shows each window once",
                n + 4,
                "to refine windows with late rows, write EMIT ALLOWED LATENESS INTERVAL '1 hour'",
            )
    places = [n for n in body.outside(1) if body.word(n) == "EMIT" and body.word(n + 1) in _NEXT]
    if not places:
        return body, BEFORE_THEY_CLOSE
    return body.part(0, places[-1]), _read(Words(body, places[-1]))


def take_emission_before(words: Words) -> Emission | None:
    """Read an EMIT clause in front of AS, where RisingWave has it; None if there is none."""
    fragment = words.fragment
    if fragment.word(words.at) != "EMIT":
        return None
    end = next((n for n in fragment.outside(words.at) if fragment.word(n) == "AS"), len(fragment))
    clause = fragment.part(words.at, end)
    words.at = end
    if clause.words == _CLOSE:
        return Emission(on_close=True)
    return _read(Words(clause, 0))


def refuse_emission(query: SqlFragment, place: int) -> None:
    """Refuse an EMIT clause that cannot be read, or stands behind a query that cannot have one."""
    if query.word(place + 1) in ("IMMEDIATELY", "CHANGES"):
        query.fail(
            f"EMIT {query.word(place + 1)} is not supported",
            place,
            "leave it out: a materialized view shows windows while they fill",
        )
    if query.has(place, *_CLOSE) or query.word(place + 1) in _NEXT:
        clause = _name(query, place)
        query.fail(f"{clause} can only stand at the end of a materialized view or of a sink's query", place)
    query.fail("this EMIT clause cannot be read", place, f"write {_USAGE}")


def _name(query: SqlFragment, place: int) -> str:
    return " ".join(_CLOSE) if query.has(place, *_CLOSE) else f"EMIT {query.word(place + 1)}"


def _read(words: Words) -> Emission:
    words.need("EMIT")
    clause = _name(words.fragment, words.at - 1)
    early = _how_often(words) if words.take("EARLY", "EVERY") else None
    late = _how_often(words) if words.take("LATE", "EVERY") else None
    lateness = _interval(words, "an allowed lateness", 0) if words.take("ALLOWED", "LATENESS") else 0
    mode: Mode = next((m for word, m in _MODES.items() if words.take(word)), "retracting")
    if not words.over:
        words.fail("this cannot stand in EMIT", f"write {_USAGE}")
    if lateness and late is None:
        late = AfterCount(1)  # a late row changes its window at once
    return Emission(False, AfterWatermark(early, late), lateness, mode, clause)


def _how_often(words: Words) -> Trigger:
    if words.fragment.word(words.at) == "INTERVAL":
        return Repeatedly(AfterDelay(_interval(words, "the time between panes", 1), aligned=True))
    start, count = words.at, words.number()
    if count < 1:
        words.fragment.fail("panes come after at least one row", start, "write EVERY 1 ROW")
    if not (words.take("ROWS") or words.take("ROW")):
        words.fail("ROWS should stand here", "write EVERY 100 ROWS, or EVERY INTERVAL '5 seconds'")
    return AfterCount(count)


def _interval(words: Words, what: str, least_us: int) -> int:
    """Read a constant interval, in microseconds."""
    start = words.at
    if words.fragment.word(start) != "INTERVAL":
        words.fail("an interval should stand here", "write INTERVAL '1 hour'")
    words.at += 1
    while not words.over and words.fragment.word(words.at) not in _NEXT:
        words.at += 1
    text = words.fragment.part(start, words.at).sql
    try:
        found = ask(
            f"select [epoch_us(i), datepart('year', i) * 12 + datepart('month', i)] from (select {text} as i)"
        )
    except duckdb.Error:
        found = [None, 0]
    if found[0] is None:
        words.fragment.fail("this is no interval", start, "write INTERVAL '5 seconds'")
    length, months = found
    if months:
        words.fragment.fail(f"{what} must be of days or less", start, "write INTERVAL '30 days'")
    if length is None or length < least_us:
        words.fragment.fail(f"{what} must be {'positive' if least_us else 'at least 0'}", start)
        raise InternalError("an interval was not refused", detail=text)
    return int(length)
