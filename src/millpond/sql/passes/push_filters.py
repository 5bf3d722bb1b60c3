"""Moves each condition to where it can be evaluated first.

A condition moves below projections that pass its columns on, below joins to the side that it reads where the
join keeps that side, and into a common table expression's query.  Cross products and inner joins become one
`BoundProduct` with the conditions that read more than one of its parts.

Rows that a join reads as of now must not be lost before it, so conditions on now() stay above such a join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.sql.bound.clock import reads_clock
from millpond.sql.bound.expressions import BoundExpression, Comparison, Reference, moved, references, shifted
from millpond.sql.bound.relations import (
    BoundAsOfNow,
    BoundCrossProduct,
    BoundCte,
    BoundFilter,
    BoundJoin,
    BoundLookupJoin,
    BoundMarkJoin,
    BoundPick,
    BoundProduct,
    BoundProject,
    BoundRelation,
)

_Part = tuple[BoundRelation, int]  # a part of a product, and the position of its first column
_Conditions = Sequence[BoundExpression]


def push_filters(node: BoundRelation) -> BoundRelation:
    if isinstance(node, BoundFilter):
        found = _filtered(node.input, node.conditions)
        return BoundPick(input=found, places=node.shown) if node.shown else found
    if isinstance(node, BoundCrossProduct | BoundJoin) and _is_product(node):
        return _product(node, ())
    if type(node) is BoundJoin:
        return _with_sides(node, (), ())
    return node.with_inputs([push_filters(one) for one in node.inputs])


def _filtered(node: BoundRelation, conditions: _Conditions) -> BoundRelation:
    """Return the rows of a node for which all conditions hold."""
    match node:
        case _ if not conditions:
            return push_filters(node)
        case BoundCrossProduct() | BoundJoin() if _is_product(node):
            return _product(node, conditions)
        case BoundFilter() if not node.shown:
            return _filtered(node.input, [*node.conditions, *conditions])
        case BoundCte():
            definition = push_filters(node.definition)
            return replace(node, definition=definition, query=_filtered(node.query, conditions))
        case BoundProject():
            return _below_projection(node, conditions)
        case BoundMarkJoin():
            return _below_mark(node, conditions)
        case BoundJoin() if type(node) is BoundJoin:
            return _below_join(node, conditions)
    return _with_conditions(push_filters(node), conditions)


def _with_conditions(node: BoundRelation, conditions: _Conditions) -> BoundRelation:
    return BoundFilter(input=node, conditions=tuple(conditions)) if conditions else node


# -- through one node ------------------------------------------------------------------------------------


def _below_projection(node: BoundProject, conditions: _Conditions) -> BoundRelation:
    """Move conditions on columns that the projection only passes on below it."""
    places = {n: e.index for n, e in enumerate(node.outputs) if isinstance(e, Reference)}
    below = [c for c in conditions if places.keys() >= set(references(c))]
    rest = [c for c in conditions if not any(c is b for b in below)]
    made = replace(node, input=_filtered(node.input, [moved(c, places) for c in below]))
    return _with_conditions(made, rest)


def _below_mark(node: BoundMarkJoin, conditions: _Conditions) -> BoundRelation:
    """Move conditions that do not read the mark to the left."""
    places = dict(enumerate(node.places))
    below = [moved(c, places) for c in conditions if len(places) not in set(references(c))]
    rest = [c for c in conditions if len(places) in set(references(c))]
    made = replace(node, left=_filtered(node.left, below), right=push_filters(node.right))
    return _with_conditions(made, rest)


def _below_join(node: BoundJoin, conditions: _Conditions) -> BoundRelation:
    """Move conditions to the preserved side of an outer join, and to the left of a semi or anti join."""
    if node.left_shown or (node.right_shown and node.kind != "SINGLE"):
        return _with_conditions(push_filters(node), conditions)
    by_row = _is_as_of_now(node.right)
    width = node.left.width
    left: list[BoundExpression] = []
    right: list[BoundExpression] = []
    rest: list[BoundExpression] = []
    for condition in conditions:
        used = set(references(condition))
        if by_row and reads_clock(condition):
            rest.append(condition)
        elif used and max(used) < width and node.kind in ("LEFT", "SINGLE", "SEMI", "ANTI"):
            left.append(condition)
        elif used and min(used) >= width and node.kind == "RIGHT":
            right.append(shifted(condition, width))
        else:
            rest.append(condition)
    return _with_conditions(_with_sides(node, left, right), rest)


def _with_sides(node: BoundJoin, left: _Conditions, right: _Conditions) -> BoundRelation:
    """Return a join whose sides satisfy these conditions; a table as of now makes it a lookup."""
    by_row = node.kind == "LEFT" and _is_as_of_now(node.right)
    below = _opened(node.right) if by_row else node.right
    one, other = _filtered(node.left, left), _filtered(below, right)
    if not by_row:
        return replace(node, left=one, right=other)
    return BoundLookupJoin(
        left=one,
        right=other,
        kind=node.kind,
        conditions=node.conditions,
        condition=node.condition,
        left_shown=node.left_shown,
        right_shown=node.right_shown,
    )


# -- tables as of now ------------------------------------------------------------------------------------


def _is_as_of_now(node: BoundRelation) -> bool:
    """Is this a table as of now, perhaps with conditions on it?"""
    while isinstance(node, BoundFilter):
        node = node.input
    return isinstance(node, BoundProject) and isinstance(node.input, BoundAsOfNow)


def _opened(node: BoundRelation) -> BoundRelation:
    """Return the table of a table as of now; the caller joins it."""
    if isinstance(node, BoundAsOfNow):
        return node.input
    assert isinstance(node, BoundFilter | BoundProject)
    return replace(node, input=_opened(node.input))


# -- products --------------------------------------------------------------------------------------------


def _is_product(node: BoundRelation) -> bool:
    if isinstance(node, BoundCrossProduct):
        return True
    plain = type(node) is BoundJoin and node.kind == "INNER"
    return plain and not node.left_shown and not node.right_shown  # type: ignore[attr-defined]


def _product(node: BoundCrossProduct | BoundJoin, conditions: _Conditions) -> BoundRelation:
    asked: list[BoundExpression] = []
    parts = _parts_of(node, 0, asked)
    asked += conditions
    marked = [_is_as_of_now(part) for part, _ in parts]
    by_row = [] if all(marked) else [n for n, one in enumerate(marked) if one]
    made: list[BoundRelation] = []
    used: set[int] = set()
    for number, (part, first) in enumerate(parts):
        own = range(first, first + part.width)
        below = [n for n, c in enumerate(asked) if (r := set(references(c))) and r <= set(own)]
        if any(marked) and number not in by_row:  # the other parts must not lose rows before the join
            below = [n for n in below if not reads_clock(asked[n])]
        used |= set(below)
        part = _opened(part) if number in by_row else part
        made.append(_filtered(part, [shifted(asked[n], first) for n in below]))
    rest = tuple(c for n, c in enumerate(asked) if n not in used)
    return BoundProduct(parts=tuple(made), conditions=rest, as_of_now=tuple(by_row))


def _parts_of(node: BoundCrossProduct | BoundJoin, at: int, asked: list[BoundExpression]) -> list[_Part]:
    """Return the parts of a product whose first column is at `at`; add its conditions to `asked`."""
    left = _side(node.left, at, asked)
    middle = left[-1][1] + left[-1][0].width
    right = _side(node.right, middle, asked)
    if isinstance(node, BoundJoin):
        for c in node.conditions:
            one = shifted(c.left, -at)
            if c.right is not None:
                one = Comparison(c.how, one, shifted(c.right, -middle), type="BOOLEAN")
            asked.append(one)
    return [*left, *right]


def _side(node: BoundRelation, at: int, asked: list[BoundExpression]) -> list[_Part]:
    """Return the parts of one side.

    A join as of now is one part, because its rows must be joined when the rows of its left arrive.
    """
    filters = isinstance(node, BoundFilter) and not node.shown
    inner = node.input if isinstance(node, BoundFilter) and filters else node
    if not isinstance(inner, BoundCrossProduct | BoundJoin) or not _is_product(inner):
        return [(node, at)]
    if _is_as_of_now(inner.left) or _is_as_of_now(inner.right):
        return [(node, at)]
    if isinstance(node, BoundFilter):
        asked += [shifted(c, -at) for c in node.conditions]
    return _parts_of(inner, at, asked)
