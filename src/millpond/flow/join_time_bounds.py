"""Reads from the condition of a join how far apart in time two joined rows may be.

    paid_at BETWEEN at AND at + INTERVAL '10 minutes'    0 <= paid_at - at <= 10 minutes

Law: a span is found only if every pair that meets the condition obeys it.  A condition that is not understood
yields no span, and the join keeps its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millpond.plan.expiry import TimeDistance

_UNITS_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}

Moved = tuple[tuple[int, str], int]  # (side, column) and microseconds


def time_spans(condition: str, columns: Sequence[tuple[str, int, str]]) -> list[TimeDistance]:
    """What a condition over the output of a join says; columns are (output name, side, input name).

    >>> columns = [("at", 0, "at"), ("paid_at", 1, "at")]
    >>> time_spans("paid_at BETWEEN at AND at + INTERVAL '10 minutes'", columns)[1]
    TimeDistance(left='at', right='at', low_us=None, high_us=600000000)
    """
    import sqlglot  # only joins with a condition need it
    from sqlglot.errors import SqlglotError

    known = {name.lower(): (side, column) for name, side, column in columns}
    try:
        tree = sqlglot.parse_one(condition, read="duckdb")
    except SqlglotError:  # DuckDB has the last word on what is a condition
        return []
    return list(_spans(tree, known))


def _spans(node: Any, known: Mapping[str, tuple[int, str]]) -> Iterator[TimeDistance]:
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        yield from _spans(node.this, known)
    elif isinstance(node, exp.And):
        yield from _spans(node.left, known)
        yield from _spans(node.right, known)
    elif isinstance(node, exp.Between):
        yield from _compared(_moved(node.args["low"], known), _moved(node.this, known))
        yield from _compared(_moved(node.this, known), _moved(node.args["high"], known))
    elif isinstance(node, exp.LT | exp.LTE):
        yield from _compared(_moved(node.left, known), _moved(node.right, known))
    elif isinstance(node, exp.GT | exp.GTE):
        yield from _compared(_moved(node.right, known), _moved(node.left, known))
    elif isinstance(node, exp.EQ):
        yield from _compared(_moved(node.left, known), _moved(node.right, known), equal=True)


def _compared(less: Moved | None, more: Moved | None, *, equal: bool = False) -> Iterator[TimeDistance]:
    """`less` <= `more`, where they are columns of different sides."""
    if less is None or more is None or less[0][0] == more[0][0]:
        return
    apart = less[1] - more[1]  # column of `more` minus column of `less` is at least this
    if less[0][0] == 0:
        yield TimeDistance(less[0][1], more[0][1], apart, apart if equal else None)
    else:  # right + a <= left + b: right - left <= b - a
        yield TimeDistance(more[0][1], less[0][1], -apart if equal else None, -apart)


def _moved(node: Any, known: Mapping[str, tuple[int, str]]) -> Moved | None:
    """A column that is moved by constant intervals, if it is no more than that."""
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return _moved(node.this, known)
    if isinstance(node, exp.Column):
        found = None if node.table else known.get(node.name.lower())
        return None if found is None else (found, 0)
    if not isinstance(node, exp.Add | exp.Sub):
        return None
    left, right = node.left, node.right
    if isinstance(node, exp.Add) and isinstance(left, exp.Interval):
        left, right = right, left
    by, column = _interval_us(right), _moved(left, known)
    if by is None or column is None:
        return None
    return column[0], column[1] + (by if isinstance(node, exp.Add) else -by)


def _interval_us(node: Any) -> int | None:
    """The length of a constant interval; months have none."""
    from sqlglot import exp

    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    unit = _UNITS_US.get(str(node.args.get("unit") or "").upper().removesuffix("S"))
    try:
        return None if unit is None else int(node.this.this) * unit
    except ValueError:
        return None
