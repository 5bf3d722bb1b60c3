"""Conditions on now(): rows enter and leave the view as epoch time passes."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.operators.valid_interval import ValidInterval
from millpond.sql.binding.now import bounds
from millpond.sql.binding.types import Json, quoted
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation


def lower(low: Lowering, source: Relation, conditions: Sequence[Json]) -> Relation:
    """Return the rows for which all conditions hold at the epoch's time; store only columns that are read."""
    since, until = bounds(conditions, source.columns, low.binder.constant)
    shape = low.shape(source)
    kinds = {c.name: c.type for c in source.columns}
    names = [n for n in shape.schema.names if n in kinds or n in (shape.key or ())]
    step = source.step
    lies = low.builder.plan.nodes[step].binding.placed_by == shape.key  # then no exchange is needed
    if names and names != shape.schema.names and not (lies and shape.key):
        step = low.compute(source, [(n, quoted(n), kinds.get(n, "")) for n in names], "read").step
    return Relation(low.add(ValidInterval(since, until), (step,), "during"), source.columns)
