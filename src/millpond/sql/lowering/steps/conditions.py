"""Conditions on rows; by conditions on now(), rows enter and leave the view as epoch time passes."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.operators.filter import Filter
from millpond.operators.valid_interval import ValidInterval
from millpond.sql.binding.types import quoted
from millpond.sql.bound.clock import reads_clock
from millpond.sql.bound.expressions import BoundExpression
from millpond.sql.lowering.clock_conditions import bounds
from millpond.sql.lowering.expressions import render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation


def kept(low: Lowering, source: Relation, conditions: Sequence[BoundExpression]) -> Relation:
    """Return the rows of a relation for which all conditions hold."""
    timed = [c for c in conditions if reads_clock(c)]
    plain = [c for c in conditions if not reads_clock(c)]
    if plain:
        text = " AND ".join(render(c, source.columns) for c in plain)
        source = Relation(low.add(Filter(text), (source.step,), "where"), source.columns)
    return _during(low, source, timed) if timed else source


def _during(low: Lowering, source: Relation, conditions: Sequence[BoundExpression]) -> Relation:
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
