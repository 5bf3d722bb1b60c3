"""Parses WATERMARK FOR: the time column, the strategy, and when partitions are idle or too far ahead.

WATERMARK FOR at AS at - INTERVAL '5 seconds'
WATERMARK FOR at AS percentile(0.99, INTERVAL '1 hour') IDLE INTERVAL '30 seconds'
WATERMARK FOR at AS slack(1000) MAX DRIFT INTERVAL '1 minute'
WATERMARK FOR at AS monotonous() PUNCTUATION (kind = 'heartbeat')
WATERMARK FOR at AS complete_until
WATERMARK FOR at AS my_bound()
WATERMARK FOR at AS at - INTERVAL '1 hour' HEARTBEATS FROM beats
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb

from millpond import watermarks
from millpond.kernels.watermark_strategies import Bounded, Strategy
from millpond.operators.watermark import Watermark
from millpond.plan.objects import SqlColumn
from millpond.sql.binding.bind import as_user_error
from millpond.sql.binding.types import quoted
from millpond.sql.text.duckdb_parser import ask
from millpond.sql.text.duckdb_text import readable_expression
from millpond.sql.text.parse import SqlFragment, Words

_OPTIONS = (("IDLE",), ("MAX", "DRIFT"), ("PUNCTUATION",), ("HEARTBEATS", "FROM"))
_STRATEGIES = ("PERCENTILE", "SLACK", "MONOTONOUS")


@dataclass(frozen=True)
class WatermarkClause:
    made: Watermark
    heartbeats: str | None = None  # the name of the rows that move it, too
    function: str | None = None  # the name of the Python function that is its strategy


def read_watermark(columns: Sequence[SqlColumn], time: str, fragment: SqlFragment) -> WatermarkClause:
    """The watermark of a column, from what follows AS."""
    kind = next(c.type for c in columns if c.name == time)
    if not kind.startswith("TIMESTAMP"):
        fragment.fail(
            f"the time of a watermark must be a timestamp, column {time!r} is {kind}", 0, "cast it in a view"
        )
    places = [place for words in _OPTIONS if (place := fragment.find(*words, start=1)) is not None]
    ends = sorted([*places, len(fragment)])
    heartbeats: str | None = None
    strategy = fragment.part(0, ends[0])
    function = _called(strategy)
    found = Bounded(0) if function is not None else _strategy(kind, time, columns, strategy)
    delay_us = found.delay_us if isinstance(found, Bounded) else 0
    made = Watermark(time, delay_us, None if isinstance(found, Bounded) else found)
    for start, end in itertools.pairwise(ends):
        words = Words(fragment.part(start, end))
        if words.take("IDLE"):
            made = replace(made, idle_us=_interval_us(words.rest))
        elif words.take("MAX", "DRIFT"):
            made = replace(made, drift_us=_interval_us(words.rest))
        elif words.take("PUNCTUATION"):
            inner, words.at = words.fragment.bracket(words.at)
            words.end()
            sql = readable_expression(inner.sql, inner.dialect)
            made = replace(made, punctuation=sql)
        elif words.take("HEARTBEATS", "FROM"):
            heartbeats = words.only_name()
    return WatermarkClause(made, heartbeats, function)


def _called(fragment: SqlFragment) -> str | None:
    """The name of a function without arguments that is no strategy of ours."""
    if len(fragment) != 3 or [fragment.word(1), fragment.word(2)] != ["(", ")"]:
        return None
    return None if fragment.word(0) in _STRATEGIES else Words(fragment.part(0, 1)).only_name()


def _strategy(kind: str, time: str, columns: Sequence[SqlColumn], fragment: SqlFragment) -> Strategy:
    name = fragment.word(0)
    said = next((c for c in columns if len(fragment) == 1 and c.name.upper() == name), None)
    if said is not None and said.name != time:
        if not said.type.startswith("TIMESTAMP"):
            fragment.fail(f"the time of a watermark must be a timestamp, column {said.name!r} is {said.type}")
        return watermarks.announced(said.name)
    if name not in _STRATEGIES or fragment.word(1) != "(":
        return Bounded(_delay_us(kind, time, fragment))
    inner, after = fragment.bracket(1)
    if after != len(fragment):
        fragment.fail(
            "nothing more should stand here",
            after,
            "IDLE, MAX DRIFT, PUNCTUATION and HEARTBEATS FROM may follow",
        )
    given = [part for part in inner.split() if part.tokens]
    if name == "MONOTONOUS":
        if given:
            inner.fail("monotonous() takes nothing")
        return watermarks.monotonous()
    if not given or len(given) > (2 if name == "PERCENTILE" else 1):
        fragment.fail(
            f"{name.lower()} takes other values", 0, "percentile(0.99, INTERVAL '1 hour') or slack(1000)"
        )
    try:
        number = float(given[0].sql)
    except ValueError:
        given[0].fail("a number should stand here")
        raise
    if name == "SLACK":
        if number != int(number):
            given[0].fail("slack is a whole number of rows")
        return watermarks.slack(int(number))
    if len(given) == 1:
        return watermarks.percentile(number)
    return watermarks.percentile(number, window=_interval_us(given[1]) / 1_000_000)


def _interval_us(fragment: SqlFragment) -> int:
    if not fragment.tokens:
        fragment.fail("an interval should stand here", 0, "INTERVAL '30 seconds'")
    sql = readable_expression(fragment.sql, fragment.dialect)
    asked = f"select epoch_us(timestamp '2024-01-01' + ({sql})) - epoch_us(timestamp '2024-01-01')"
    try:
        found = ask(asked)
    except duckdb.Error as error:
        raise as_user_error(error, asked) from error
    if not isinstance(found, int) or found <= 0:
        fragment.fail("the interval must be positive", 0, "INTERVAL '30 seconds'")
    return int(found)


def _delay_us(kind: str, time: str, fragment: SqlFragment) -> int:
    """Return the delay of a watermark behind its column; refuse one that is not the same for every row."""
    sql = readable_expression(fragment.sql, fragment.dialect)
    found = []
    for at in ("2024-01-01", "2024-07-15 12:34:56"):
        row = f"select cast(timestamp '{at}' as {kind}) as {quoted(time)}"
        asked = f"select epoch_us({quoted(time)}) - epoch_us({sql}) from ({row})"
        try:
            found.append(ask(asked))
        except duckdb.Error as error:
            raise as_user_error(error, asked) from error
    if found[0] != found[1] or found[0] is None:
        fragment.fail("a watermark is a time column minus an interval", 0, f"{time} - INTERVAL '5 seconds'")
    return int(found[0])
