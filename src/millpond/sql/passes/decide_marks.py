"""Tells a join for IN or EXISTS which mark is kept, where a condition tests only the mark.

… WHERE x IN (…) keeps the rows with a partner; WHERE NOT x IN (…) those that are sure to have none.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.sql.bound.expressions import BoundExpression, BoundOperator, Reference
from millpond.sql.bound.relations import BoundFilter, BoundMarkJoin, BoundRelation, rebuilt


def decide_marks(relation: BoundRelation) -> BoundRelation:
    return rebuilt(relation, _decided)


def _decided(node: BoundRelation) -> BoundRelation:
    if not isinstance(node, BoundFilter) or not isinstance(node.input, BoundMarkJoin):
        return node
    join = node.input
    place = join.width - 1
    decided = join.decided
    rest: list[BoundExpression] = []
    for condition in node.conditions:
        kept = _decided_mark(condition, place)
        if kept is not None and decided is None:
            decided = kept
        else:
            rest.append(condition)
    made = replace(join, decided=decided)
    return replace(node, input=made, conditions=tuple(rest)) if rest else made


def _decided_mark(condition: BoundExpression, place: int) -> bool | None:
    """Return the mark that a condition keeps, if it tests only the mark."""
    match condition:
        case Reference(index=index) if index == place:
            return True
        case BoundOperator(kind="OPERATOR_NOT", arguments=(Reference(index=index),)) if index == place:
            return False
    return None
