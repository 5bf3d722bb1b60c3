"""Lets intervals be keys: one month equals thirty days, and one day 24 hours.

GROUP BY, DISTINCT, UNION, EXCEPT, INTERSECT and equalities of joins take the one form that all equal
intervals have: as many months of 30 days as possible, then days, then the time.  So '30 days' and '1 month'
are one group, which shows '1 month' whatever came first (law 3).

Law: two keys are equal as intervals if and only if their stored forms are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millpond.sql.bound.expressions import (
    AggregateCall,
    BoundExpression,
    BoundFunction,
    Comparison,
    Constant,
    Reference,
    WindowCall,
    mapped,
)
from millpond.sql.bound.relations import (
    BoundAggregate,
    BoundCte,
    BoundCteReference,
    BoundFilter,
    BoundJoin,
    BoundProject,
    BoundRelation,
    BoundWindow,
    nodes_of,
    rebuilt,
)
from millpond.sql.bound.words import SAME
from millpond.sql.passes.compute_lateral_rows import distinct_columns

_EQUAL = ("=", "IS NOT DISTINCT FROM")
_INTERVAL = "INTERVAL"


def normalize_intervals(relation: BoundRelation) -> BoundRelation:
    """Normalise all keys but those that hand the intervals of outer rows to a correlated query."""
    tables = [node for node in nodes_of(relation) if isinstance(node, BoundCte)]
    handed = [node.definition for node in tables if distinct_columns(node.definition) is not None]
    indexes = {node.index for node in tables if node.definition in handed}

    def changed(node: BoundRelation) -> BoundRelation:
        if node in handed or (isinstance(node, BoundAggregate) and _reads(node, indexes)):
            return node
        if isinstance(node, BoundJoin) and (_reads(node.left, indexes) or _reads(node.right, indexes)):
            made = _normalized_node(node)
            assert isinstance(made, BoundJoin)
            kept = zip(node.conditions, made.conditions, strict=True)
            return replace(made, conditions=tuple(old if old.how == SAME else new for old, new in kept))
        return _normalized_node(node)

    return rebuilt(relation, changed)


def _reads(relation: BoundRelation, indexes: set[int]) -> bool:
    """Does a relation read one of these common table expressions?"""
    return any(isinstance(node, BoundCteReference) and node.index in indexes for node in nodes_of(relation))


def _normalized_node(node: BoundRelation) -> BoundRelation:
    if isinstance(node, BoundProject):
        return _with_keys_shown(node)
    if isinstance(node, BoundAggregate):
        groups, calls = all_normalized(node.groups), tuple(map(_distinct, node.calls))
        return replace(node, groups=groups, calls=calls)
    if isinstance(node, BoundWindow):
        return replace(node, calls=tuple(map(_partitions, node.calls)))
    if isinstance(node, BoundFilter):
        return replace(node, conditions=tuple(map(_equality, node.conditions)))
    if isinstance(node, BoundJoin):
        conditions = (
            replace(c, left=normalized_key(c.left), right=normalized_key(c.right))
            if c.right is not None and c.how in _EQUAL
            else c
            for c in node.conditions
        )
        condition = None if node.condition is None else _equality(node.condition)
        return replace(node, conditions=tuple(conditions), condition=condition)
    return node


def _with_keys_shown(node: BoundProject) -> BoundProject:
    """Show the key of a group, where DuckDB shows the first interval that was equal to it."""
    above: list[BoundProject | BoundFilter] = [node]
    below = node.input
    while isinstance(below, BoundFilter) and not below.shown:
        above.append(below)
        below = below.input
    if not isinstance(below, BoundAggregate):
        return node
    keys = {}
    for number, call in enumerate(below.calls):
        if call.name == "first" and call.type == _INTERVAL and not call.orders and call.filter is None:
            key = normalized_key(call.arguments[0])
            if key in below.groups:
                keys[len(below.groups) + number] = below.groups.index(key)
    if not keys:
        return node
    made: BoundRelation = below
    for one in reversed(above):
        expressions = tuple(_moved(each, keys) for each in one.expressions)
        made = (
            replace(one, input=made, conditions=expressions)
            if isinstance(one, BoundFilter)
            else replace(one, input=made, outputs=expressions)
        )
    assert isinstance(made, BoundProject)
    return made


def _moved(node: BoundExpression, places: dict[int, int]) -> BoundExpression:
    if isinstance(node, Reference):
        return replace(node, index=places.get(node.index, node.index))
    return mapped(node, lambda child: _moved(child, places))


def normalized_key(node: BoundExpression) -> BoundExpression:
    if node.type != _INTERVAL or (isinstance(node, BoundFunction) and node.name == "normalized_interval"):
        return node
    return BoundFunction("normalized_interval", (node,), type=_INTERVAL, alias=node.alias, at=node.at)


def all_normalized(nodes: Iterable[BoundExpression]) -> tuple[BoundExpression, ...]:
    return tuple(map(normalized_key, nodes))


def _distinct(call: AggregateCall) -> AggregateCall:
    return replace(call, arguments=all_normalized(call.arguments)) if call.distinct else call


def _partitions(call: WindowCall) -> WindowCall:
    return replace(call, partitions=all_normalized(call.partitions))


def _equality(node: BoundExpression) -> BoundExpression:
    if isinstance(node, Comparison) and node.how in _EQUAL and node.left.type == _INTERVAL:
        if isinstance(node.left, Constant) or isinstance(node.right, Constant):
            return node  # no key of a join
        return replace(node, left=normalized_key(node.left), right=normalized_key(node.right))
    return mapped(node, _equality)
