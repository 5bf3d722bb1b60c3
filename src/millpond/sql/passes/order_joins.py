"""Orders the joins of a product: each relation is joined where it has a key in common with an earlier one.

Only relations without any equality become cross products.  Tables as of now come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millpond.sql.bound.clock import reads_clock
from millpond.sql.bound.expressions import BoundExpression, Comparison, references
from millpond.sql.bound.relations import (
    BoundInnerJoins,
    BoundProduct,
    BoundRelation,
    Pair,
    PairOfParts,
    rebuilt,
)
from millpond.sql.bound.words import EQUALITIES


@dataclass(frozen=True)
class _PartsTogether:
    """Parts joined so far: the number of the first one, and the columns of all."""

    part: int
    columns: frozenset[int]


def order_joins(relation: BoundRelation) -> BoundRelation:
    return rebuilt(relation, _ordered)


def _ordered(node: BoundRelation) -> BoundRelation:
    if type(node) is not BoundProduct:
        return node
    parts = [
        _PartsTogether(n, frozenset(range(first, first + part.width)))
        for n, (part, first) in enumerate(zip(node.parts, node.starts, strict=True))
    ]
    groups = [group for group in parts if group.part not in node.as_of_now]
    rest: list[BoundExpression] = list(node.conditions)
    joins: list[PairOfParts] = []
    while len(groups) > 1:
        a, b = _next(groups, rest)
        join, rest = _joined(groups[a], groups[b], rest)
        joins.append(join)
        groups[a] = _PartsTogether(groups[a].part, groups[a].columns | groups[b].columns)
        del groups[b]
    (whole,) = groups
    for number in node.as_of_now:
        join, rest = _joined(whole, parts[number], rest)
        joins.append(join)
        whole = _PartsTogether(whole.part, whole.columns | parts[number].columns)
    return BoundInnerJoins(
        parts=node.parts, conditions=tuple(rest), as_of_now=node.as_of_now, joins=tuple(joins)
    )


def _next(groups: Sequence[_PartsTogether], conditions: Sequence[BoundExpression]) -> tuple[int, int]:
    """Return the first two groups that an equality connects, else the first two."""
    for a, one in enumerate(groups):
        for b in range(a + 1, len(groups)):
            if any(_pair(c, one, groups[b]) is not None for c in conditions):
                return a, b
    return 0, 1


def _joined(
    one: _PartsTogether, two: _PartsTogether, conditions: Sequence[BoundExpression]
) -> tuple[PairOfParts, list[BoundExpression]]:
    """Join two groups by the conditions over both; also return the remaining conditions."""
    columns = one.columns | two.columns
    pairs: list[Pair] = []
    others: list[BoundExpression] = []
    rest: list[BoundExpression] = []
    for condition in conditions:
        used = set(references(condition))
        if not used or not used <= columns or reads_clock(condition):
            rest.append(condition)
        elif (pair := _pair(condition, one, two)) is not None:
            pairs.append(pair)
        else:
            others.append(condition)
    return PairOfParts(one.part, two.part, tuple(pairs), tuple(others)), rest


def _pair(condition: BoundExpression, one: _PartsTogether, two: _PartsTogether) -> Pair | None:
    """Return (expression of one, expression of two, comparison) if the condition equates the two groups."""
    if not isinstance(condition, Comparison) or condition.how not in EQUALITIES:
        return None
    for a, b in ((condition.left, condition.right), (condition.right, condition.left)):
        left, right = set(references(a)), set(references(b))
        if left and right and left <= one.columns and right <= two.columns:
            return a, b, condition.how
    return None
