"""Common table expressions: one relation that all references share."""

from __future__ import annotations

from millpond.sql.bound.relations import BoundCte, BoundCteReference
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation


def lower(low: Lowering, node: BoundCte) -> Relation:
    low.ctes[node.index] = low.lower(node.definition)
    return low.lower(node.query)


def lower_reference(low: Lowering, node: BoundCteReference) -> Relation:
    return low.ctes[node.index]
