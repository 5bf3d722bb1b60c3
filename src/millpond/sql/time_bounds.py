"""Time in a plan: windows that wait for their end, and state that ends with its time.

Law 1: with EMIT ON WINDOW CLOSE every relation of windows holds those alone that
all watermarks of the query have passed; nothing of a window is seen before.
Aggregates by windows keep accumulators until then; before any other step that
brings rows together, or loses sight of their window, rows are held (`Hold`).

Law 5: wherever later rows cannot lie behind a bound, steps drop the state behind
it; what they gave stays with the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.operators.aggregate import Aggregate, Close
from millpond.operators.bounds import Bound, for_key
from millpond.operators.hold import Hold
from millpond.operators.join import Join
from millpond.operators.operator import Operator, Placement, Shape
from millpond.operators.window import Hop, Tumble
from millpond.plan.expiry import Span, expiring, meets_closed, open_window

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
    if isinstance(operator, Join) and meets_closed(operator, shapes[0], shapes[1]):
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


def _expiring(low: Lowering, operator: Operator, shapes: Sequence[Shape], spans: Iterable[Span]) -> Operator:
    found = expiring(operator, shapes, spans)
    return operator if found in low.kept else found
