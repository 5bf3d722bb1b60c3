"""What a watermark step needs to know of other steps: whose watermark it inherits, whose heartbeats it hears,
and its input without punctuations."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.kernels.bounds import Bound
from millpond.operators.branch import Arm, Branch
from millpond.operators.filter import Filter
from millpond.operators.filter_rows import FilterRows
from millpond.operators.flat_map import FlatMap
from millpond.operators.map import Map
from millpond.operators.map_batches import MapBatches
from millpond.operators.operator import Shape
from millpond.operators.union import Union
from millpond.operators.watermark import Watermark
from millpond.process.batch_process import BatchProcess
from millpond.process.keyed_process import KeyedProcess

# Steps that make rows of rows, one by one: these may have the time of those.
PYTHON = (Map, Filter, FilterRows, FlatMap, MapBatches, Branch, Arm, Union, KeyedProcess, BatchProcess)


def bound_of_time(shape: Shape, time: str) -> Bound | None:
    """The bound of a time column: the watermark that limits its later values."""
    found = next((b for b in shape.bounds if b.column == time), None)
    if found is None and shape.time == time and shape.watermark is not None:
        return Bound(time, ((shape.watermark, 0),), 1)
    return None if found is None else replace(found, grid=False, window="", by="")


def inherited_bound(builder: Builder, step: str, time: str) -> Bound:
    """The least of the watermarks of all rows from which those of this step are computed."""
    watermarks: set[tuple[str, int]] = set()
    for name, bound in _nearest(builder, step):
        if bound is None:
            raise InvalidError(
                "there is no watermark to inherit",
                detail=f"the rows of {name!r} have none",
                hint=f'set one before this step: watermark("{time}", "5s"), or event_time= of stream()',
                step=step,
            )
        watermarks |= set(bound.marks)
    return Bound(time, tuple(sorted(watermarks)), 1)


def passed_on_bound(builder: Builder, step: str) -> Bound | None:
    """The watermark that rows still have behind Python functions that pass their time column on."""
    shape = builder.shape(step)
    nearest = _nearest(builder, step, PYTHON)
    times = {None if found is None else found.column for _, found in nearest}
    time = times.pop() if len(times) == 1 else None
    if time is None or time not in shape.schema.names or not shape.append_only:
        return None
    if not pa.types.is_timestamp(shape.schema.field(time).type):
        return None
    return inherited_bound(builder, step, time)


def _nearest(
    builder: Builder, step: str, through: tuple[type, ...] = (object,)
) -> list[tuple[str, Bound | None]]:
    """The steps before this one whose rows have a watermark, and those where the search ends without one."""
    nearest: list[tuple[str, Bound | None]] = []
    waiting = [step]
    while waiting:
        name = waiting.pop()
        node, shape = builder.plan.nodes[name], builder.shape(name)
        bound = _bound(shape)
        if bound is not None or not node.inputs or not isinstance(node.operator, through):
            nearest.append((name, bound))
        else:  # a control stream only configures the process
            waiting += node.inputs[:1] if isinstance(node.operator, KeyedProcess) else node.inputs
    return nearest


def _bound(shape: Shape) -> Bound | None:
    """The bound of the time of these rows; where several columns have one, as behind a join, the least."""
    if shape.time is not None:
        return bound_of_time(shape, shape.time)
    watermarks = {mark for bound in shape.bounds for mark in bound.marks}
    return Bound("", tuple(sorted(watermarks)), 1) if watermarks else None


def heartbeat_bound(builder: Builder, step: str) -> Bound:
    """The watermark of a stream of heartbeats."""
    shape = builder.shape(step)
    found = None if shape.time is None else bound_of_time(shape, shape.time)
    if found is None:
        raise InvalidError(
            "a stream of heartbeats needs a watermark",
            detail=f"the rows of {step!r} have none",
            hint='beats.watermark("at", monotonous()), where "at" is the time before which nothing will come',
            step=step,
        )
    return found


def without_punctuations(builder: Builder, step: str) -> str:
    """The input of a watermark step, without the rows that only move the watermark."""
    node = builder.plan.nodes[step]
    assert isinstance(node.operator, Watermark)
    (source,) = node.inputs
    if node.operator.punctuation is None:
        return source
    others = Filter(f"not coalesce(({node.operator.punctuation}), false)")
    return builder.add(None, others, (source,), f"{step}.unfiltered")
