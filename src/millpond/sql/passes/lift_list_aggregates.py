"""Turns functions over the list of a group's rows into aggregates.

A Python aggregate or a sketch is bound as a function of a list, `f(list(row))`.  If nothing else reads the
list, the call becomes an aggregate, which need not store the rows.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.sql.bound.expressions import (
    AggregateCall,
    BoundExpression,
    BoundFunction,
    Reference,
    mapped,
)
from millpond.sql.bound.list_aggregates import is_list_aggregate
from millpond.sql.bound.relations import BoundAggregate, BoundFilter, BoundProject, BoundRelation, rebuilt


def lift_list_aggregates(relation: BoundRelation) -> BoundRelation:
    return rebuilt(relation, _lifted)


def _lifted(node: BoundRelation) -> BoundRelation:
    if not isinstance(node, BoundProject):
        return node
    above: list[BoundProject | BoundFilter] = [node]
    below = node.input
    while isinstance(below, BoundFilter) and not below.shown:
        above.append(below)
        below = below.input
    if not isinstance(below, BoundAggregate) or below.groupings:
        return node
    expressions = [list(one.expressions) for one in above]
    calls = list(below.calls)
    for number in range(len(below.calls)):
        expressions = _lift_one(expressions, calls, len(below.groups), number)
    made: BoundRelation = replace(below, calls=tuple(calls))
    for one, own in zip(reversed(above), reversed(expressions), strict=True):
        if isinstance(one, BoundFilter):
            made = replace(one, input=made, conditions=tuple(own))
        else:
            made = replace(one, input=made, outputs=tuple(own))
    return made


def _lift_one(
    expressions: list[list[BoundExpression]], calls: list[AggregateCall], groups: int, number: int
) -> list[list[BoundExpression]]:
    """Lift the functions of one list; change `calls`, and return the expressions that read them."""
    call, place = calls[number], groups + number
    row = call.arguments[0] if call.name in ("list", "array_agg") else None
    if not isinstance(row, BoundFunction) or row.name != "struct_pack":
        return expressions
    found: list[BoundFunction] = []
    if not all(_readers(one, place, found) for some in expressions for one in some):
        return expressions  # something reads the list itself
    at: dict[str, int] = {}
    for reader in found:
        if reader.name in at:
            continue
        made = replace(
            call, name=reader.name, arguments=row.arguments, row=row, list_type=call.type, type=reader.type
        )
        if not at:
            at[reader.name] = number
            calls[number] = made
        else:
            at[reader.name] = len(calls)
            calls.append(made)
    places = {name: groups + n for name, n in at.items()}
    return [[_reading(one, place, places) for one in some] for some in expressions]


def _readers(node: BoundExpression, place: int, found: list[BoundFunction]) -> bool:
    """Collect the list aggregates over a column; return whether nothing else reads it."""
    if isinstance(node, Reference):
        return node.index != place
    if isinstance(node, BoundFunction) and _reads(node, place):
        found.append(node)
        return True
    return all(_readers(child, place, found) for child in node.children)


def _reads(node: BoundFunction, place: int) -> bool:
    if not is_list_aggregate(node):
        return False
    (inner,) = node.arguments
    return isinstance(inner, Reference) and inner.index == place


def _reading(node: BoundExpression, place: int, places: dict[str, int]) -> BoundExpression:
    """Return the expression with each function over the list replaced by a reference to its aggregate."""
    if isinstance(node, BoundFunction) and _reads(node, place):
        return Reference(places[node.name], type=node.type, alias=node.alias, at=node.at)
    return mapped(node, lambda child: _reading(child, place, places))
