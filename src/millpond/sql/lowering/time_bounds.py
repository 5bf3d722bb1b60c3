"""Time in a plan: emitting windows when they close, and expiring state.

Law 1: with EMIT ON WINDOW CLOSE a relation of windows contains only windows that all
watermarks of the query have passed; no row of a window is visible before.
Aggregates by window keep accumulators until then.  Before any other step that combines
rows, or drops the columns of the window, rows are held back (`EmitOnClose`).

Law 5: where no later row can be behind a bound, steps drop the state behind it; the
view keeps the rows that they emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.kernels.aggregate_feeds import Close
from millpond.kernels.bounds import Bound, for_key
from millpond.operators.aggregate import Aggregate
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.emit_on_close import EmitOnClose
from millpond.operators.join import Join
from millpond.operators.operator import Operator, Placement, Shape
from millpond.operators.traits import DependsOnArrival
from millpond.operators.window import Hop, Tumble
from millpond.plan.expiry import TimeDistance, expiring, meets_closed, open_window

if TYPE_CHECKING:
    from millpond.sql.lowering.lowering import Lowering

NEEDS_WATERMARK = "needs windows that end by a watermark"
NO_WATERMARK = f"EMIT ON WINDOW CLOSE {NEEDS_WATERMARK}"


def fitted(
    low: Lowering, operator: Operator, inputs: tuple[str, ...], spans: Iterable[TimeDistance], early: bool
) -> tuple[Operator, tuple[str, ...]]:
    """Prepare a step to be added: read only closed windows if the query says so, and bound its state."""
    if low.emit_on_close and not early:
        inputs = _held_back(low, operator, inputs)
    return expiring(operator, [low.builder.shape(i) for i in inputs], spans), inputs


# -- windows that close -----------------------------------------------------------------


def closing(low: Lowering, keys: Sequence[str], step: str) -> Close | None:
    """Return how the groups of an aggregate close, if they are windows bounded by a watermark."""
    if not low.emit_on_close:
        return None
    bounds = [b for b in low.builder.shape(step).bounds if b.window and b.grid]
    found = for_key(bounds, keys)
    if found is None:
        return None
    until = _until(low, found)
    marks = () if len(until.marks) == 1 and until.marks[0][1] == 0 else until.marks
    return Close(until.column, until.marks[0][0], until.width_us, marks)


def hold_open_windows(low: Lowering, step: str) -> str:
    """Return the rows of a step, with rows of open windows held back."""
    shape = low.builder.shape(step)
    return step if open_window(shape) is None else _hold(low, step, shape, None)


def hold_windows_of(low: Lowering, step: str, key: tuple[str, ...]) -> str:
    """Hold back the rows of a step by a key of windows; each window is emitted when it closes."""
    windows = [b for b in low.builder.shape(step).bounds if b.window]
    found = for_key(windows, key)
    assert found is not None
    return low.builder.add(None, EmitOnClose(key, _until(low, found)), (step,), f"{low.name}.hold")


def _held_back(low: Lowering, operator: Operator, inputs: tuple[str, ...]) -> tuple[str, ...]:
    shapes = tuple(low.builder.shape(i) for i in inputs)
    if all(open_window(s) is None for s in shapes):
        return inputs
    if isinstance(operator, Aggregate) and operator.closes is not None:
        return inputs
    if isinstance(operator, Join) and meets_closed(operator, shapes[0], shapes[1]):
        return inputs
    binding = operator.bind("of", shapes)
    as_they_come = isinstance(operator, DependsOnArrival)  # its output depends on when rows arrive
    linear = as_they_come or all(p.kind == "here" for p in binding.placements)
    linear = linear and not isinstance(operator, AssignWindows | Tumble | Hop)
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
        key = placing_key(shape)
    return low.builder.add(None, EmitOnClose(key, _until(low, found)), (step,), f"{low.name}.hold")


def placing_key(shape: Shape) -> tuple[str, ...]:
    """The columns by which rows are placed that no later step needs together."""
    return tuple(f.name for f in shape.schema if not pa.types.is_nested(f.type))


def _until(low: Lowering, bound: Bound) -> Bound:
    """Extend the bound to all watermarks that windows of the query wait for."""
    low.closed = True
    low.waited |= {step for step, _ in bound.marks}
    most = max(shift for _, shift in bound.marks)
    more = {(step, most) for step in low.together if step not in {s for s, _ in bound.marks}}
    return replace(bound, marks=tuple(sorted({*bound.marks, *more})))
