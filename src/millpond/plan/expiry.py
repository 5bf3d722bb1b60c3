"""State expiry: chooses the bound by which a step's state expires, for SQL and the flow API.

Law 1: a row leaves a step's state only when no later row can join or retract it; the view keeps the output.
So a step whose own table is a view never expires.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millpond.kernels.bounds import Bound, for_key
from millpond.operators.accumulate import Accumulate
from millpond.operators.aggregate import Aggregate
from millpond.operators.distinct import Distinct
from millpond.operators.distinct_values import DistinctValues
from millpond.operators.emit_panes import EmitPanes
from millpond.operators.extreme import Extreme
from millpond.operators.in_order import InOrder
from millpond.operators.join import Join
from millpond.operators.lookup_memory import LookupMemory
from millpond.operators.operator import Operator, Shape
from millpond.operators.per_key import PerKey
from millpond.operators.reduce import Reduce
from millpond.operators.top_n import TopN

Keyed = (
    Accumulate
    | Aggregate
    | Distinct
    | DistinctValues
    | EmitPanes
    | Extreme
    | LookupMemory
    | PerKey
    | Reduce
    | TopN
)


@dataclass(frozen=True)
class TimeDistance:
    """A join condition: the right column minus the left column is between `low_us` and `high_us`."""

    left: str
    right: str
    low_us: int | None
    high_us: int | None


def expiring(operator: Operator, shapes: Sequence[Shape], spans: Iterable[TimeDistance] = ()) -> Operator:
    """The operator with the bounds by which its state expires, as far as its inputs have bounds."""
    if isinstance(operator, Join):
        return replace(operator, bounds=join_bounds(operator, shapes[0], shapes[1], spans))
    match operator:
        case PerKey(apart=None) | Aggregate(closes=None):
            key = operator.key
        case Accumulate() | DistinctValues() | EmitPanes() | Extreme() | Reduce() | TopN():
            key = operator.key
        case LookupMemory():
            key = operator.columns
        case Distinct():
            key = tuple(shapes[0].schema.names) if operator.columns is None else operator.columns
        case _:
            return operator
    return replace(operator, expires=for_key(shapes[0].bounds, key))


def is_view_and_ends(operator: Operator) -> bool:
    """Would the step's own table be the view if its state did not expire?"""
    return isinstance(operator, Aggregate | Distinct | EmitPanes | Extreme) and operator.expires is not None


def unending(operator: Operator) -> Operator:
    """The operator without expiry of its state."""
    if isinstance(operator, Join):
        return replace(operator, bounds=())
    return replace(operator, expires=None) if isinstance(operator, Keyed) else operator


def ending_as(operator: Operator, other: Operator) -> Operator:
    """The operator with the expiry of another operator of the same class."""
    if isinstance(operator, Join) and isinstance(other, Join):
        return replace(operator, bounds=other.bounds)
    if isinstance(operator, Keyed) and type(operator) is type(other):
        return replace(operator, expires=other.expires)
    if isinstance(operator, InOrder) and isinstance(other, InOrder):
        return replace(operator, forgets=other.forgets)
    return operator


# -- joins -------------------------------------------------------------------------------


def join_bounds(
    join: Join, left: Shape, right: Shape, spans: Iterable[TimeDistance]
) -> tuple[tuple[int, Bound], ...]:
    """The bounds by which the rows of each side expire: (side, bound).

    A row of the left side is needed while a row of the right side at most `high` after it can still come, and
    while it can be retracted itself; the same holds for the right side.
    """
    apart = [TimeDistance(a, b, 0, 0) for a, b in zip(join.left_on, join.right_on, strict=True)]
    bounds: list[tuple[int, Bound]] = []
    for distance in (*apart, *spans):
        one = next((b for b in left.bounds if b.column == distance.left), None)
        two = next((b for b in right.bounds if b.column == distance.right), None)
        if one is None or two is None:
            continue
        same = distance.low_us == distance.high_us == 0
        kinds = {one.window, two.window} if same else set()
        if "closed" in kinds and meets_closed(join, left, right):
            kinds = {"closed"}
        known: dict[str, Any] = {
            "window": "open" if "open" in kinds else "closed" if kinds == {"closed"} else "",
            "grid": one.grid and two.grid,
        }
        if distance.high_us is not None:
            watermarks = tuple(sorted({*one.marks, *two.moved(distance.high_us)}))
            bounds.append((0, replace(one, marks=watermarks, width_us=_width(one, distance), **known)))
        if distance.low_us is not None:
            watermarks = tuple(sorted({*two.marks, *one.moved(-distance.low_us)}))
            by = one.by if same else two.by
            bounds.append((1, replace(two, marks=watermarks, width_us=_width(two, distance), by=by, **known)))
    return tuple(bounds)


def open_window(shape: Shape) -> Bound | None:
    """The end (or else the start) of windows that are still open, if the rows have one."""
    return next((b for b in shape.bounds if b.window == "open"), None)


def meets_closed(join: Join, left: Shape, right: Shape) -> bool:
    """Does each pair belong to one window, of which one side emits rows only when it is closed for both?"""
    ways = {"inner": ((0, 1), (1, 0)), "semi": ((0, 1),)}.get(join.kind, ())
    shapes, on = (left, right), (join.left_on, join.right_on)
    for early, late in ways:
        opened = open_window(shapes[early])
        if opened is None or open_window(shapes[late]) is not None:
            continue
        for mine, theirs in zip(on[early], on[late], strict=True):
            ours = [b for b in shapes[early].bounds if b.column == mine and b.by == opened.by]
            closed = [b for b in shapes[late].bounds if b.column == theirs and b.window == "closed"]
            if ours and closed and all(_not_after(mark, closed[0]) for mark in ours[0].marks):
                return True
    return False


def _not_after(mark: tuple[str, int], other: Bound) -> bool:
    return any(step == mark[0] and shift >= mark[1] for step, shift in other.marks)


def _width(bound: Bound, distance: TimeDistance) -> int:
    """The width of buckets: a few buckets for the time that a row is kept."""
    reach = max(abs(distance.low_us or 0), abs(distance.high_us or 0))
    return bound.width_us if bound.grid else max(bound.width_us, math.ceil(reach / 4))
