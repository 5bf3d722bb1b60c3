"""Conditions on now(): the epoch times at which a comparison holds for a row.

Where now() occurs in a comparison in WHERE, each row has a valid interval.  That is a function of the row,
and `operators.valid_interval` maintains it.  Anywhere else now() is refused: its value would differ in every
epoch, and every row would change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol

import pyarrow as pa

from millpond.sql.bound.clock import is_clock, reads_clock, refuse_clock
from millpond.sql.bound.expressions import (
    BoundExpression,
    BoundFunction,
    BoundOperator,
    Cast,
    Comparison,
    Conjunction,
    Constant,
    CurrentTime,
)
from millpond.sql.bound.words import DIFFERENT, EQUALITIES, SAME
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.refusal import NotSupported

_UNITS = {
    **{unit: f"INTERVAL '1 {unit}'" for unit in ("second", "minute", "hour", "day", "week", "month", "year")},
    "quarter": "INTERVAL '3 months'",
}
_FLIPPED = {
    "<": ">",
    ">": "<",
    "<=": ">=",
    ">=": "<=",
    "=": "=",
    SAME: "=",
}
_NEGATED = {
    "<": ">=",
    ">": "<=",
    "<=": ">",
    ">=": "<",
    "<>": "=",
    DIFFERENT: "=",
}
_APART = ("<>", DIFFERENT)
_TIMES = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "DATE")
_BEGIN, _END = "CAST('-infinity' AS TIMESTAMP)", "CAST('infinity' AS TIMESTAMP)"
_DAY_US = 86_400_000_000


class ConstantQuery(Protocol):
    """Runs a query that reads no relation."""

    def __call__(self, sql: str) -> pa.Table: ...


@dataclass(frozen=True)
class ConditionInterval:
    """When a condition holds for a row: if `guard` holds, from `since` until before `until`.

    All are SQL; None means no bound.  A bound is never NULL.
    """

    guard: str | None = None
    since: str | None = None
    until: str | None = None

    @property
    def timed(self) -> bool:
        return self.since is not None or self.until is not None

    def alone(self) -> ConditionInterval:
        """Move the guard into the bounds: for a row that it rejects, the interval is empty."""
        if self.guard is None:
            return self
        if self.since is not None:
            return ConditionInterval(
                None, f"CASE WHEN {self.guard} THEN {self.since} ELSE {_END} END", self.until
            )
        return ConditionInterval(
            None, None, f"CASE WHEN {self.guard} THEN {self.until or _END} ELSE {_BEGIN} END"
        )


def bounds(
    conditions: Sequence[BoundExpression], columns: Sequence[StepColumn], constant: ConstantQuery
) -> tuple[str | None, str | None]:
    """Return (since, until) for rows that satisfy all conditions: SQL of type TIMESTAMP over the columns."""
    whole = _all([_Conditions(columns, constant).span(c) for c in conditions]).alone()
    return whole.since, whole.until


def _all(parts: Sequence[ConditionInterval]) -> ConditionInterval:
    guards = [p.guard for p in parts if p.guard is not None]
    since = [p.since for p in parts if p.since is not None]
    until = [p.until for p in parts if p.until is not None]
    return ConditionInterval(_joined(" AND ", guards), _of("greatest", since), _of("least", until))


def _any(node: BoundExpression, parts: Sequence[ConditionInterval]) -> ConditionInterval:
    """Combine the intervals of an OR into one, if they are sure to have no gaps between them."""
    timed = [p for p in parts if p.timed]
    if len(timed) > 1:
        if any(p.since is not None for p in timed) and any(p.until is not None for p in timed):
            raise NotSupported(
                "conditions on now() on both sides of OR must bound time on the same side",
                at=node.at,
                hint="make them two queries with UNION",
            )
        alone = [p.alone() for p in timed]
        since = [p.since for p in alone if p.since is not None]
        until = [p.until for p in alone if p.until is not None]
        one = ConditionInterval(None, _of("least", since), _of("greatest", until))
    else:
        (one,) = timed
    held = _joined(" OR ", [p.guard for p in parts if p.guard is not None and not p.timed])
    if held is None:
        return one
    return ConditionInterval(
        None if one.guard is None else f"({held} OR {one.guard})",
        None if one.since is None else f"CASE WHEN {held} THEN {_BEGIN} ELSE {one.since} END",
        None if one.until is None else f"CASE WHEN {held} THEN {_END} ELSE {one.until} END",
    )


def _joined(word: str, texts: Sequence[str]) -> str | None:
    return f"({word.join(texts)})" if texts else None


def _of(function: str, texts: Sequence[str]) -> str | None:
    if len(texts) < 2:
        return texts[0] if texts else None
    return f"{function}({', '.join(texts)})"


@dataclass(frozen=True)
class _Clock:
    """floor(now + before, unit) + after, in microseconds; without a unit, now + after."""

    unit: str | None = None
    before: int = 0
    after: int = 0

    def shifted(self, by: int) -> _Clock:
        return replace(self, after=self.after + by)

    def floored(self, node: BoundExpression, unit: str) -> _Clock:
        if self.unit is None:
            return _Clock(unit, self.after)
        if self.unit == unit == "day" and self.after % _DAY_US == 0:
            return self
        _refuse_within(node)

    def span(self, value: str, how: str) -> ConditionInterval:
        """Return when `value how clock` holds; the clock is a step function that never decreases."""
        level = _moved(value, -self.after)
        if self.unit is None:
            upto, beyond = level, f"{level} + INTERVAL '1 microsecond'"
        else:
            floor = f"date_trunc('{self.unit}', {level})"
            beyond = f"{floor} + {_UNITS[self.unit]}"
            upto = f"CASE WHEN {floor} = {level} THEN {level} ELSE {beyond} END"
        match how:
            case ">":
                return ConditionInterval(until=self._at(value, upto, _BEGIN))
            case ">=":
                return ConditionInterval(until=self._at(value, beyond, _BEGIN))
            case "<":
                return ConditionInterval(since=self._at(value, beyond, _END))
            case "<=":
                return ConditionInterval(since=self._at(value, upto, _END))
        return ConditionInterval(
            f"(isfinite({value}) IS TRUE)", self._at(value, upto, _END), self._at(value, beyond, _BEGIN)
        )

    def _at(self, value: str, text: str, missing: str) -> str:
        made = _moved(f"({text})", -self.before)
        return f"COALESCE(CASE WHEN isfinite({value}) THEN {made} ELSE {value} END, {missing})"


def _moved(text: str, by: int) -> str:
    return text if not by else f"({text} + to_microseconds({by}))"


@dataclass(frozen=True)
class _Conditions:
    """Turns conditions over these columns into intervals."""

    columns: Sequence[StepColumn]
    constant: ConstantQuery

    def span(self, node: BoundExpression, negated: bool = False) -> ConditionInterval:
        if not reads_clock(node):
            text = render(node, self.columns)
            return ConditionInterval(guard=f"((NOT {text}) IS TRUE)" if negated else f"({text} IS TRUE)")
        if isinstance(node, Conjunction):
            parts = [self.span(c, negated) for c in node.parts]
            return _all(parts) if (node.word == "AND") is not negated else _any(node, parts)
        if isinstance(node, BoundOperator) and node.kind == "OPERATOR_NOT":
            return self.span(node.arguments[0], not negated)
        if not isinstance(node, Comparison):
            _refuse_within(node)
        if node.how in (EQUALITIES if negated else _APART):
            raise NotSupported(
                "a row that is valid before and after a time has no one interval",
                at=node.at,
                hint="use < or > instead of <>",
            )
        how = _NEGATED.get(node.how, "") if negated else node.how
        if how not in _FLIPPED:
            _refuse_within(node)
        return self._comparison(node, how)

    def _comparison(self, node: Comparison, how: str) -> ConditionInterval:
        left, right = node.left, node.right
        if left.type == "INTERVAL":
            left, how, clock = self._of_distance(node, how)
        elif not reads_clock(left):
            clock = self._clock(right)
        elif reads_clock(right):
            _refuse_within(node)
        else:
            left, how, clock = right, _FLIPPED[how], self._clock(left)
        kind = left.type
        if kind not in _TIMES:
            raise NotSupported(
                f"now() cannot be compared as {kind} in a materialized view",
                at=node.at,
                hint="compare a TIMESTAMP or a DATE; cast the column, or use to_timestamp(seconds)",
            )
        return clock.span(f"CAST({render(left, self.columns)} AS TIMESTAMP)", how)

    def _of_distance(self, node: Comparison, how: str) -> tuple[BoundExpression, str, _Clock]:
        """Rewrite now() - x < INTERVAL … as a comparison of x; a month in such a comparison has 30 days."""
        left, right = (_plain_interval(c) for c in node.children)
        if reads_clock(right):
            left, right, how = right, left, _FLIPPED[how]
        length = self._length(right, months=True)
        if length is None or not isinstance(left, BoundFunction) or left.name != "-":
            _refuse_within(node)
        if len(left.arguments) != 2:
            _refuse_within(node)
        one, two = left.arguments
        if reads_clock(one) and reads_clock(two):
            _refuse_within(node)
        if reads_clock(one):
            return two, _FLIPPED[how], self._clock(one).shifted(-length)
        return one, how, self._clock(two).shifted(length)

    def _clock(self, node: BoundExpression) -> _Clock:
        """Return an expression of now() as a step function that never decreases; refuse any other."""
        if isinstance(node, CurrentTime):
            return _Clock()
        if isinstance(node, Cast):
            inner = self._clock(node.argument)
            if node.type not in _TIMES:
                _refuse_within(node)
            to_day = node.type == "DATE" and node.argument.type != node.type
            return inner.floored(node, "day") if to_day else inner
        if not isinstance(node, BoundFunction):
            _refuse_within(node)
        name, kids = node.name, node.arguments
        if name == "date_trunc" and isinstance(kids[0], Constant):
            unit = str(kids[0].value).lower().removesuffix("s")
            if unit not in _UNITS:
                _refuse_within(node)
            return self._clock(kids[1]).floored(node, unit)
        if name in ("+", "-") and len(kids) == 2:
            one, two = (kids[1], kids[0]) if name == "+" and reads_clock(kids[1]) else (kids[0], kids[1])
            if reads_clock(one) and not reads_clock(two):
                length = self._length(two)
                if length is None:
                    raise NotSupported(
                        "only a constant of days or less can be added to now() or taken from it",
                        at=node.at,
                        hint="move it to the other side: ts + INTERVAL '1 month' > now()",
                    )
                return self._clock(one).shifted(length if name == "+" else -length)
        _refuse_within(node)

    def _length(self, node: BoundExpression, months: bool = False) -> int | None:
        """Return the microseconds of a constant interval or number of days.

        With `months` a month counts as 30 days; without it an interval that has months gives None.
        """
        if not _is_constant(node):
            return None
        kind, text = node.type, render(node, ())
        if kind in ("INTEGER", "BIGINT"):
            days = self.constant(f"select CAST({text} AS BIGINT) as n").column(0)[0].as_py()
            return None if days is None else int(days) * _DAY_US
        if kind != "INTERVAL":
            return None
        found = self.constant(
            f"select epoch_us(i) as us, datepart('year', i) * 12 + datepart('month', i) as months"
            f" from (select {text} as i)"
        )
        length, month_count = (column[0].as_py() for column in found.columns)
        return None if length is None or (month_count and not months) else int(length)


def _is_constant(node: BoundExpression) -> bool:
    """Is the value the same whenever it is computed?"""
    if isinstance(node, Constant):
        return node.value is not None
    if isinstance(node, BoundFunction):
        steady = node.name in ("+", "-", "*", "/") or node.name.startswith("to_")
    else:
        steady = isinstance(node, Cast)
    return steady and all(map(_is_constant, node.children))


def _plain_interval(node: BoundExpression) -> BoundExpression:
    """Remove the normal form in which DuckDB compares intervals."""
    if isinstance(node, BoundFunction) and node.name == "normalized_interval":
        return node.arguments[0]
    return node


def _refuse_within(node: BoundExpression) -> NoReturn:
    """Refuse the first use of now() in an expression."""
    waiting = [node]
    while waiting:
        one = waiting.pop(0)
        if is_clock(one):
            refuse_clock(one)
        waiting = [*one.children, *waiting]
    refuse_clock(node)
