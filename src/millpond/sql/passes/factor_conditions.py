"""Factors out the conditions that all branches of an OR share.

    (a = b AND x > 1) OR (a = b AND x < 0)   =   a = b AND ((a = b AND x > 1) OR (a = b AND x < 0))

The shared condition can then be evaluated early, or become the key of a join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.sql.bound.expressions import BoundExpression, Conjunction, conjuncts
from millpond.sql.bound.relations import BoundFilter, BoundJoin, BoundRelation, JoinCondition, rebuilt


def factor_conditions(relation: BoundRelation) -> BoundRelation:
    return rebuilt(relation, _factored_node)


def _factored_node(node: BoundRelation) -> BoundRelation:
    if isinstance(node, BoundFilter):
        return replace(node, conditions=factored(node.conditions))
    if type(node) is BoundJoin and node.kind == "INNER" and node.condition is not None:
        more = [JoinCondition("", one, None) for one in factored([node.condition])]
        return replace(node, conditions=(*node.conditions, *more), condition=None)
    return node


def factored(nodes: Sequence[BoundExpression]) -> tuple[BoundExpression, ...]:
    """Return the conditions that must all hold, including those that all branches of an OR share."""
    found: list[BoundExpression] = []
    for node in conjuncts(nodes):
        if isinstance(node, Conjunction):
            branches = [list(conjuncts([c])) for c in node.parts]
            found += [c for c in branches[0] if all(c in branch for branch in branches[1:])]
        found.append(node)
    return tuple(found)
