"""Projections: expressions over rows."""

from __future__ import annotations

from millpond.sql.bound.clock import reads_stamp
from millpond.sql.bound.relations import BoundPick, BoundProject
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.steps import stamp


def lower(low: Lowering, node: BoundProject) -> Relation:
    source, outputs = low.lower(node.input), list(node.outputs)
    if any(map(reads_stamp, outputs)):
        source, outputs = stamp.selected(low, source, outputs)
    return low.project(source, outputs)


def lower_pick(low: Lowering, node: BoundPick) -> Relation:
    return low.lower(node.input).pick(node.places)
