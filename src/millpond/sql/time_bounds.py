"""Time in a plan: windows that wait for their end, and state that ends with its time.

Law 1: with EMIT ON WINDOW CLOSE every relation of windows holds those alone that
all watermarks of the query have passed; nothing of a window is seen before.
Aggregates by windows keep accumulators until then; before any other step that
brings rows together, or loses sight of their window, rows are held (`Hold`).

Law 5: wherever later rows cannot lie behind a bound, steps drop the state behind
it; what they gave stays with the view.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.operators.aggregate import Aggregate, Close
from millpond.operators.bounds import Bound, for_key
from millpond.operators.distinct import Distinct
from millpond.operators.distinct_values import DistinctValues
from millpond.operators.hold import Hold
from millpond.operators.join import Join
from millpond.operators.operator import Operator, Placement, Shape
from millpond.operators.per_key import PerKey
from millpond.operators.top_n import TopN
from millpond.operators.window import Hop, Tumble
from millpond.sql.spans import Span

if TYPE_CHECKING:
    from millpond.sql.lowering import Lowering

NO_WATERMARK = "EMIT ON WINDOW CLOSE needs windows that end by a watermark"


def fitted(
    low: Lowering, operator: Operator, inputs: tuple[str, ...], spans: Iterable[Span], early: bool
) -> tuple[Operator, tuple[str, ...]]:
    """A step that is to be added: over rows of closed windows where that is asked for, with bounded state."""
    if low.emit_on_close and not early:
        inputs = _held(low, operator, inputs)
    return _expiring(low, operator, [low.builder.shape(i) for i in inputs], spans), inputs


# -- windows that close -----------------------------------------------------------------


def open_window(shape: Shape) -> Bound | None:
    """The end (or else the start) of windows that are not over, if the rows have such."""
    return next((b for b in shape.bounds if b.window == "open"), None)


def closing(low: Lowering, keys: Sequence[str], step: str) -> Close | None:
    """How the groups of an aggregate close, if they are windows that a watermark bounds."""
    if not low.emit_on_close:
        return None
    bounds = [b for b in low.builder.shape(step).bounds if b.window and b.grid]
    found = for_key(bounds, keys)
    if found is None:
        return None
    until = _until(low, found)
    marks = () if len(until.marks) == 1 and until.marks[0][1] == 0 else until.marks
    return Close(until.column, until.marks[0][0], until.width_us, marks)


def hold_whole(low: Lowering, step: str) -> str:
    """The rows of a step, those of open windows held."""
    shape = low.builder.shape(step)
    return step if open_window(shape) is None else _hold(low, step, shape, None)


def hold_by(low: Lowering, step: str, key: tuple[str, ...]) -> str:
    """The rows of a step that lie by a key of windows, each window when it is over and as it is then."""
    windows = [b for b in low.builder.shape(step).bounds if b.window]
    found = for_key(windows, key)
    assert found is not None
    return low.builder.add(None, Hold(key, _until(low, found)), (step,), f"{low.name}.hold")


def _held(low: Lowering, operator: Operator, inputs: tuple[str, ...]) -> tuple[str, ...]:
    shapes = tuple(low.builder.shape(i) for i in inputs)
    if all(open_window(s) is None for s in shapes):
        return inputs
    if isinstance(operator, Aggregate) and operator.closes is not None:
        return inputs
    if isinstance(operator, Join) and _meets_closed(operator, shapes[0], shapes[1]):
        return inputs
    binding = operator.bind("of", shapes)
    as_they_come = getattr(operator, "once", False)  # what it gives depends on when rows come
    linear = as_they_come or all(p.kind == "here" for p in binding.placements)
    linear = linear and not isinstance(operator, Tumble | Hop)
    if linear and open_window(binding.shape) is not None:
        return inputs
    return tuple(
        step if open_window(shape) is None else _hold(low, step, shape, placement)
        for step, shape, placement in zip(inputs, shapes, binding.placements, strict=True)
    )


def _meets_closed(join: Join, left: Shape, right: Shape) -> bool:
    """Are all pairs of one window, of which one side gives rows only when it is over for the other, too?"""
    ways = {"inner": ((0, 1), (1, 0)), "semi": ((0, 1),)}.get(join.kind, ())
    shapes, on = (left, right), (join.left_on, join.right_on)
    for early, late in ways:
        found = open_window(shapes[early])
        if found is None or open_window(shapes[late]) is not None:
            continue
        for mine, theirs in zip(on[early], on[late], strict=True):
            ours = [b for b in shapes[early].bounds if b.column == mine and b.by == found.by]
            over = [b for b in shapes[late].bounds if b.column == theirs and b.window == "closed"]
            if ours and over and all(_not_after(mark, over[0]) for mark in ours[0].marks):
                return True
    return False


def _not_after(mark: tuple[str, int], other: Bound) -> bool:
    return any(step == mark[0] and shift >= mark[1] for step, shift in other.marks)


def _hold(low: Lowering, step: str, shape: Shape, placement: Placement | None) -> str:
    found = open_window(shape)
    assert found is not None
    key = placement.key if placement is not None and placement.kind == "hash" else ()
    if not key or not set(key) <= set(shape.schema.names):
        key = tuple(f.name for f in shape.schema if not pa.types.is_nested(f.type))
    return low.builder.add(None, Hold(key, _until(low, found)), (step,), f"{low.name}.hold")


def _until(low: Lowering, bound: Bound) -> Bound:
    """The bound, of all watermarks that windows of the query wait for."""
    low.closed = True
    low.waited |= {step for step, _ in bound.marks}
    most = max(shift for _, shift in bound.marks)
    more = {(step, most) for step in low.together if step not in {s for s, _ in bound.marks}}
    return replace(bound, marks=tuple(sorted({*bound.marks, *more})))


# -- state that ends ----------------------------------------------------------------------


def is_view_and_ends(operator: Operator) -> bool:
    """Would the step's own table be the view, if it did not end with time?"""
    return isinstance(operator, Aggregate | Distinct) and operator.expires is not None


def _expiring(low: Lowering, operator: Operator, shapes: Sequence[Shape], spans: Iterable[Span]) -> Operator:
    if isinstance(operator, Join):
        return replace(operator, bounds=_of_join(operator, shapes[0], shapes[1], spans))
    match operator:
        case PerKey(apart=None) | TopN(buckets=None) | Aggregate(closes=None) | DistinctValues():
            key = operator.key
        case Distinct(columns=(*columns,)):
            key = tuple(columns)
        case _:
            return operator
    found = replace(operator, expires=for_key(shapes[0].bounds, key))
    return operator if found in low.kept else found


def _of_join(join: Join, left: Shape, right: Shape, spans: Iterable[Span]) -> tuple[tuple[int, Bound], ...]:
    """What bounds the rows of either side that can still meet a later one.

    A row of the left is of use as long as a row of the right can come that lies at most `high` after it,
    and as long as it can be taken back itself; the other way round likewise.
    """
    apart = [Span(a, b, 0, 0) for a, b in zip(join.left_on, join.right_on, strict=True)]
    found: list[tuple[int, Bound]] = []
    for span in (*apart, *spans):
        one = next((b for b in left.bounds if b.column == span.left), None)
        two = next((b for b in right.bounds if b.column == span.right), None)
        if one is None or two is None:
            continue
        same = span.low_us == span.high_us == 0
        kinds = {one.window, two.window} if same else set()
        if "closed" in kinds and _meets_closed(join, left, right):
            kinds = {"closed"}
        known: dict[str, Any] = {
            "window": "open" if "open" in kinds else "closed" if kinds == {"closed"} else "",
            "grid": one.grid and two.grid,
        }
        if span.high_us is not None:
            marks = tuple(sorted({*one.marks, *two.moved(span.high_us)}))
            found.append((0, replace(one, marks=marks, width_us=_width(one, span), **known)))
        if span.low_us is not None:
            marks = tuple(sorted({*two.marks, *one.moved(-span.low_us)}))
            by = one.by if same else two.by
            found.append((1, replace(two, marks=marks, width_us=_width(two, span), by=by, **known)))
    return tuple(found)


def _width(bound: Bound, span: Span) -> int:
    """Of buckets: a few of them for as long as a row is kept."""
    reach = max(abs(span.low_us or 0), abs(span.high_us or 0))
    return bound.width_us if bound.grid else max(bound.width_us, math.ceil(reach / 4))
