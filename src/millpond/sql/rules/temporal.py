"""Conditions on now(): rows come and go as the clock of epochs passes."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.operators.during import During
from millpond.sql.clock import bounds
from millpond.sql.lowering import Lowering
from millpond.sql.relation import Relation
from millpond.sql.types import Json, quoted


def lower(low: Lowering, source: Relation, conditions: Sequence[Json]) -> Relation:
    """The rows for which all these hold at the time of the epoch; only what is read of them is kept."""
    since, until = bounds(conditions, source.columns, low.binder.constant)
    shape = low.shape(source)
    kinds = {c.name: c.type for c in source.columns}
    names = [n for n in shape.schema.names if n in kinds or n in (shape.key or ())]
    step = source.step
    lies = low.builder.plan.nodes[step].binding.placed_by == shape.key  # then no row has to travel
    if names and names != shape.schema.names and not (lies and shape.key):
        step = low.compute(source, [(n, quoted(n), kinds.get(n, "")) for n in names], "read").step
    return Relation(low.add(During(since, until), (step,), "during"), source.columns)
