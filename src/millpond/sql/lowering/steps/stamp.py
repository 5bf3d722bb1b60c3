"""proctime() in a row: the time of the epoch in which the row arrived at this view."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.operators.stamp import Stamp
from millpond.sql.bound.clock import is_stamp, reads_stamp, with_stamp
from millpond.sql.bound.expressions import BoundExpression
from millpond.sql.lowering.expressions import StepColumn
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.refusal import NotSupported

TYPE = "TIMESTAMP WITH TIME ZONE"


def stamped(low: Lowering, source: Relation, name: str, at: BoundExpression | None = None) -> Relation:
    """Add the processing time to the relation as a column; a view has one such step per input step."""
    if not low.shape(source).append_only:
        raise NotSupported(
            "rows that can be changed or deleted have no one time at which they came",
            at=None if at is None else at.at,
            hint="use proctime() over sources and APPEND ONLY tables, or put DEFAULT now() into the table",
        )
    step = low.stamps.get((source.step, name))
    if step is None:
        inputs = (source.step,)
        step = low.add(low.own(Stamp(name, low.name), inputs), inputs, "proctime")
        low.stamps[source.step, name] = step
    return Relation(step, source.columns)


def selected(
    low: Lowering, source: Relation, expressions: Sequence[BoundExpression]
) -> tuple[Relation, list[BoundExpression]]:
    """Add a column for proctime(), and return the expressions with references to it."""
    (name,) = fresh_names(["proctime"], low.shape(source).schema.names)
    first = next(found for e in expressions if (found := _first(e)) is not None)
    made = stamped(low, source, name, first)
    width = len(source.columns)
    columns = (*source.columns, StepColumn(name, TYPE))
    return Relation(made.step, columns), [with_stamp(e, width) if reads_stamp(e) else e for e in expressions]


def _first(node: BoundExpression) -> BoundExpression | None:
    if is_stamp(node):
        return node
    return next((found for child in node.children if (found := _first(child)) is not None), None)
