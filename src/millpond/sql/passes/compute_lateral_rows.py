"""Computes lateral rows in place, without a join, where they depend on one row only.

DuckDB binds `FROM t, f(t.x)` as a join of t with the result of f for the *distinct*
values of x.  Where f consists only of projections, conditions and unnesting, it can be
computed on each row directly: there is no state, and the cost is that of the change (law 5).

    join(outer, S(distinct(outer)))  on the distinct columns   =   S(outer), outer passed along
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millpond.sql.bound.expressions import BoundExpression, Reference, moved
from millpond.sql.bound.relations import (
    BoundAggregate,
    BoundCte,
    BoundCteReference,
    BoundFilter,
    BoundJoin,
    BoundListFunction,
    BoundProject,
    BoundRelation,
    BoundUnnest,
)
from millpond.sql.bound.words import SAME


@dataclass(frozen=True)
class DistinctColumns:
    """A common table expression with the distinct values of some columns of another one."""

    outer: int
    columns: tuple[int, ...]


_Known = Mapping[int, DistinctColumns]


@dataclass(frozen=True)
class _OverOuterRows:
    """A node rewritten to read the outer rows instead of the distinct values."""

    node: BoundRelation
    place: tuple[int, ...]  # the position in `node` of each column of the old node
    outer: tuple[int, ...]  # the positions in `node` of the columns of the outer rows
    types: tuple[str, ...]  # of the old node's columns
    of: tuple[int | None, ...]  # for each old column, which of the distinct columns it is, or None

    def moved(self, expressions: Sequence[BoundExpression]) -> tuple[BoundExpression, ...]:
        places = dict(enumerate(self.place))
        return tuple(moved(e, places) for e in expressions)


def compute_lateral_rows(relation: BoundRelation) -> BoundRelation:
    return _computed(relation, {})


def _computed(node: BoundRelation, known: _Known) -> BoundRelation:
    if isinstance(node, BoundCte):
        found = distinct_columns(node.definition)
        if found is not None:
            known = {**known, node.index: found}
    node = node.with_inputs([_computed(one, known) for one in node.inputs])
    if type(node) is BoundJoin and _keeps_rows(node):
        return _joined(node, known) or node
    return node


def _keeps_rows(node: BoundJoin) -> bool:
    """Does the join return, for each row, exactly what is computed from that row?

    An outer join does so if each row has exactly one partner.
    """
    if node.kind == "INNER":
        return True
    below = node.right
    while isinstance(below, BoundProject):
        below = below.input
    return node.kind in ("LEFT", "SINGLE") and isinstance(below, BoundCteReference)


def distinct_columns(node: BoundRelation) -> DistinctColumns | None:
    """What the binder makes of the outer columns that a correlated query reads; no text gives it."""
    if not isinstance(node, BoundAggregate) or node.calls or len(node.sets) > 1:
        return None
    columns = tuple(g.index for g in node.groups if isinstance(g, Reference))
    if not isinstance(node.input, BoundCteReference) or not columns or len(columns) < len(node.groups):
        return None
    return DistinctColumns(node.input.index, columns)


def _joined(node: BoundJoin, known: _Known) -> BoundRelation | None:
    left = node.left
    if not isinstance(left, BoundCteReference) or node.condition is not None:
        return None
    made = _over(node.right, left, known)
    if made is None:
        return None
    columns = _end(node.right, known).columns
    met = set()
    for condition in node.conditions:
        one, other = condition.left, condition.right
        if not isinstance(one, Reference) or not isinstance(other, Reference) or condition.how != SAME:
            return None
        which = made.of[other.index]
        if which is None or columns[which] != one.index:
            return None
        met.add(which)
    if met != set(range(len(columns))):
        return None
    shown = [Reference(made.outer[n], type=left.types[n]) for n in node.left_shown or range(left.width)]
    picked = node.right_shown or range(len(made.place))
    shown += [Reference(made.place[n], type=made.types[n]) for n in picked]
    return BoundProject(input=made.node, outputs=tuple(shown))


def _end(node: BoundRelation, known: _Known) -> DistinctColumns:
    """Return the distinct values that a chain of nodes reads."""
    while node.inputs:
        node = node.inputs[0]
    assert isinstance(node, BoundCteReference)
    return known[node.index]


def _over(node: BoundRelation, outer: BoundCteReference, known: _Known) -> _OverOuterRows | None:
    """Rewrite a chain of nodes to read the outer rows; None if it needs more than one row at a time."""
    if isinstance(node, BoundCteReference):
        found = known.get(node.index)
        if found is None or found.outer != outer.index:
            return None
        return _OverOuterRows(
            outer,
            found.columns,
            tuple(range(outer.width)),
            tuple(outer.types[c] for c in found.columns),
            tuple(range(len(found.columns))),
        )
    if len(node.inputs) != 1:
        return None
    below = _over(node.inputs[0], outer, known)
    if below is None:
        return None
    match node:
        case BoundFilter() if not node.shown:
            made = replace(node, input=below.node, conditions=below.moved(node.conditions))
            return replace(below, node=made)
        case BoundUnnest():
            return _unnested(node, below)
        case BoundProject():
            return _projected(node, below, outer)
        case BoundListFunction():
            return _listed(node, below, outer)
    return None


def _unnested(node: BoundUnnest, below: _OverOuterRows) -> _OverOuterRows:
    lists = tuple(replace(e, list=below.moved([e.list])[0]) for e in node.lists)
    width = max((*below.place, *below.outer), default=-1) + 1
    fresh = tuple(width + n for n in range(len(lists)))
    return _OverOuterRows(
        replace(node, input=below.node, lists=lists),
        below.place + fresh,
        below.outer,
        below.types + tuple(e.type for e in node.lists),
        below.of + (None,) * len(lists),
    )


def _projected(node: BoundProject, below: _OverOuterRows, outer: BoundCteReference) -> _OverOuterRows:
    passed = [Reference(p, type=kind) for p, kind in zip(below.outer, outer.types, strict=True)]
    width = len(passed)
    return _OverOuterRows(
        BoundProject(input=below.node, outputs=(*passed, *below.moved(node.outputs))),
        tuple(width + n for n in range(len(node.outputs))),
        tuple(range(width)),
        tuple(e.type for e in node.outputs),
        tuple(below.of[e.index] if isinstance(e, Reference) else None for e in node.outputs),
    )


def _listed(
    node: BoundListFunction, below: _OverOuterRows, outer: BoundCteReference
) -> _OverOuterRows | None:
    """Rewrite a function in FROM.

    Its arguments are the first columns of its input, so the outer columns go behind them.
    """
    if not isinstance(below.node, BoundProject):
        return None
    own = [below.node.outputs[p] for p in below.place]
    passed = [below.node.outputs[p] for p in below.outer]
    behind = range(len(own), len(own) + len(passed))
    width = node.width
    return _OverOuterRows(
        replace(
            node,
            input=replace(below.node, outputs=(*own, *passed)),
            passed=(*node.passed, *behind),
        ),
        tuple(range(width)),
        tuple(range(width, width + len(passed))),
        (*(node.types[n] for n in node.columns), *(below.types[n] for n in node.passed)),
        (None,) * len(node.columns) + tuple(below.of[n] for n in node.passed),
    )
