"""Lets aggregates return the types of PostgreSQL themselves, where a dialect converts what they return.

    CAST(sum(i) AS BIGINT)                       =   sum(i), a BIGINT
    numeric_divide(sum(n), count(n))             =   avg(n), a DECIMAL(38,16)
    sum(f) / count(f)                            =   avg(f), a DOUBLE

A view of such aggregates then is the table of its groups, with their key and without a copy.
Law: all that reads an aggregate that changes is changed with it.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.kernels.accumulators import NUMERIC_AVG
from millpond.sql.bound.expressions import (
    AggregateCall,
    BoundExpression,
    BoundFunction,
    Cast,
    Reference,
    mapped,
)
from millpond.sql.bound.relations import BoundAggregate, BoundFilter, BoundProject, BoundRelation, rebuilt

_QUOTIENTS = {"pg.numeric_divide.1": NUMERIC_AVG, "/": "avg"}  # the function that divides -> the aggregate
_WITNESS = "any_value"  # tells a function of the dialect the type of the values; nothing reads it


def type_aggregates(relation: BoundRelation) -> BoundRelation:
    return rebuilt(relation, _typed)


def _typed(node: BoundRelation) -> BoundRelation:
    if not isinstance(node, BoundProject):
        return node
    above: list[BoundProject | BoundFilter] = [node]
    below = node.input
    while isinstance(below, BoundFilter) and not below.shown:
        above.append(below)
        below = below.input
    if not isinstance(below, BoundAggregate):
        return node
    first, calls = len(below.groups), list(below.calls)
    expressions = [list(one.expressions) for one in above]
    expressions = [[_averaged(one, calls, first) for one in some] for some in expressions]
    for number, call in enumerate(calls):
        place = first + number
        kinds = {kind for some in expressions for one in some for kind in _kinds(one, place)}
        if call.name == "sum" and call.type == "HUGEINT" and len(kinds) == 1:
            (kind,) = kinds
            if kind in ("BIGINT", "DECIMAL(38,0)"):
                calls[number] = replace(call, type=kind)
                expressions = [[_retyped(one, place, kind) for one in some] for some in expressions]
    if tuple(calls) == below.calls and all(c.type == o.type for c, o in zip(calls, below.calls, strict=True)):
        return node
    made: BoundRelation = replace(below, calls=tuple(calls))
    for one, own in zip(reversed(above), reversed(expressions), strict=True):
        if isinstance(one, BoundFilter):
            made = replace(one, input=made, conditions=tuple(own))
        else:
            made = replace(one, input=made, outputs=tuple(own))
    return made


def _averaged(node: BoundExpression, calls: list[AggregateCall], first: int) -> BoundExpression:
    """Replace quotients of a sum and a count by an average, which takes the place of the witness."""
    if isinstance(node, BoundFunction) and node.name in _QUOTIENTS and len(node.arguments) == 2:
        places = [_cast_of(argument) for argument in node.arguments]
        if None not in places and all(p >= first for p in places if p is not None):
            total, count = (calls[p - first] for p in places if p is not None)
            known = node.name != "/" or total.type == "DOUBLE"
            if known and total.name == "sum" and count == replace(total, name="count", type="BIGINT"):
                made = replace(total, name=_QUOTIENTS[node.name], type=node.type)
                at = _place(made, calls)
                if at is not None:
                    calls[at] = made
                    return Reference(first + at, type=node.type, alias=node.alias, at=node.at)
    return mapped(node, lambda child: _averaged(child, calls, first))


def _cast_of(node: BoundExpression) -> int | None:
    """The column that an expression converts to what a quotient takes."""
    if isinstance(node, Cast) and node.type in ("VARCHAR", "DOUBLE"):
        node = node.argument
    return node.index if isinstance(node, Reference) else None


def _place(made: AggregateCall, calls: list[AggregateCall]) -> int | None:
    """Where the average is or can be: where the witness of its values was."""
    if made in calls:
        return calls.index(made)
    for number, call in enumerate(calls):
        if call.name == _WITNESS and call.arguments == made.arguments and call.filter is None:
            return number
    return None


def _kinds(node: BoundExpression, place: int) -> list[str]:
    """The types to which an expression casts a column; its own where it reads it as it is."""
    if isinstance(node, Cast) and isinstance(node.argument, Reference) and node.argument.index == place:
        return ["TRY" if node.attempt else node.type]
    if isinstance(node, Reference):
        return [node.type] if node.index == place else []
    return [kind for child in node.children for kind in _kinds(child, place)]


def _retyped(node: BoundExpression, place: int, kind: str) -> BoundExpression:
    if isinstance(node, Cast) and isinstance(node.argument, Reference) and node.argument.index == place:
        return Reference(place, type=kind, alias=node.alias, at=node.at)
    return mapped(node, lambda child: _retyped(child, place, kind))
