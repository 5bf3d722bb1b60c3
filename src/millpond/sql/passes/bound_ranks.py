"""Turns conditions that bound a rank into a relation of the first ranks.

… WHERE row_number() OVER (PARTITION BY a ORDER BY b) <= 3
… WHERE rank() OVER (PARTITION BY a ORDER BY b) = 1
"""

from __future__ import annotations

from collections.abc import Callable

from millpond.sql.bound.expressions import BoundExpression, Comparison, Reference, references
from millpond.sql.bound.relations import BoundFilter, BoundFirstRanks, BoundRelation, BoundWindow, rebuilt
from millpond.sql.bound.words import ALL_ROWS, FLIPPED

Value = Callable[[BoundExpression], object]  # the value of an expression that reads no column

_RANKS = {"WINDOW_ROW_NUMBER": False, "WINDOW_RANK": True}  # do equal rows share a rank?


def bound_ranks(relation: BoundRelation, value: Value) -> BoundRelation:
    return rebuilt(relation, lambda node: _bounded(node, value) or node)


def _bounded(node: BoundRelation, value: Value) -> BoundRelation | None:
    """Return the first ranks of a window, if conditions above bound its only call."""
    if not isinstance(node, BoundFilter) or not isinstance(node.input, BoundWindow):
        return None
    window = node.input
    if len(window.calls) != 1 or window.calls[0].kind not in _RANKS:
        return None
    (call,) = window.calls
    if call.own_orders or call.filter is not None or call.exclude != "NO_OTHER":
        return None
    place = window.input.width
    bounds = [_greatest(c, place, value) for c in node.conditions]
    last = min((b for b in bounds if b is not None), default=0)
    ties = _RANKS[call.kind]
    if not 1 <= last < ALL_ROWS or (ties and not call.orders):
        return None
    found = BoundFirstRanks(input=window.input, call=call, last=last, ties=ties)
    rest = tuple(
        c for c, b in zip(node.conditions, bounds, strict=True) if b is None or (b > 1 and _is_equal(c))
    )
    return BoundFilter(input=found, conditions=rest) if rest else found


def _is_equal(condition: BoundExpression) -> bool:
    return isinstance(condition, Comparison) and condition.how == "="


def _greatest(condition: BoundExpression, place: int, value: Value) -> int | None:
    """Return the greatest rank that a condition accepts, or None."""
    if not isinstance(condition, Comparison) or condition.how not in ("<", "<=", "=", ">", ">="):
        return None
    one, two, how = condition.left, condition.right, condition.how
    if not list(references(one)):
        one, two, how = two, one, FLIPPED[how]
    if list(references(two)) or not isinstance(one, Reference) or one.index != place:
        return None
    found = value(two)
    if not isinstance(found, int):
        return None
    if how == "<":
        return found - 1
    return found if how in ("<=", "=") else None
