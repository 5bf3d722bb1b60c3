"""Conditions on rows; `passes/push_filters.py` has put each where it is evaluated as early as possible."""

from __future__ import annotations

from millpond.sql.bound.relations import BoundFilter
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.steps.conditions import kept


def lower(low: Lowering, node: BoundFilter) -> Relation:
    found = kept(low, low.lower(node.input), node.conditions)
    return found.pick(node.shown) if node.shown else found
