"""Reads from the conditions of a join how far apart in time its two rows can be.

b.ts BETWEEN a.ts AND a.ts + INTERVAL '10 minutes'    0 <= b.ts - a.ts <= 10 minutes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millpond.plan.expiry import TimeDistance
from millpond.sql.bound.expressions import (
    BoundExpression,
    BoundFunction,
    Comparison,
    Constant,
    MonthsDaysMicros,
    Reference,
    conjuncts,
)
from millpond.sql.bound.words import EQUALITIES, FLIPPED

_UP = ("<", "<=", *EQUALITIES)  # left <= right; a column with a bound is never NULL
_DOWN = (">", ">=", *EQUALITIES)
_DAY_US = 86_400_000_000


def spans(conditions: Sequence[BoundExpression], names: Sequence[str], width: int) -> Iterator[TimeDistance]:
    """Yield the time distances that these ANDed conditions imply.

    Conditions refer to columns by position; the first `width` columns are those of the left side.
    """
    for condition in conjuncts(conditions):
        if not isinstance(condition, Comparison) or condition.how not in FLIPPED:
            continue
        how = condition.how
        one, two = _moved(condition.left), _moved(condition.right)
        if one is None or two is None:
            continue
        if one[0] >= width > two[0]:
            one, two, how = two, one, FLIPPED[how]
        if not one[0] < width <= two[0]:
            continue
        apart = one[1] - two[1]  # left + one <= right + two: right - left >= one - two
        yield TimeDistance(
            names[one[0]],
            names[two[0]],
            apart if how in _UP else None,
            apart if how in _DOWN else None,
        )


def _moved(node: BoundExpression) -> tuple[int, int] | None:
    """Return (column, microseconds) for a column plus or minus constant intervals; None for anything else."""
    if isinstance(node, Reference):
        return node.index, 0
    if not isinstance(node, BoundFunction) or len(node.arguments) != 2:
        return None
    word = node.name
    one, two = node.arguments
    if word == "+" and _interval(one) is not None:
        one, two = two, one
    by, found = _interval(two), _moved(one)
    if word not in ("+", "-") or by is None or found is None:
        return None
    return found[0], found[1] + (by if word == "+" else -by)


def _interval(node: BoundExpression) -> int | None:
    """Return the microseconds of a constant interval; None if it has months, whose length varies."""
    if not isinstance(node, Constant) or not isinstance(node.value, MonthsDaysMicros) or node.value.months:
        return None
    return node.value.days * _DAY_US + node.value.micros
