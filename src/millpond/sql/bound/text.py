"""A bound relation as text, for tests and for people who look at what a pass did.

filter a > 1
  get t (0, 1)
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.sql.bound.expressions import (
    AggregateCall,
    BoundCase,
    BoundExpression,
    BoundFunction,
    BoundOperator,
    Cast,
    Comparison,
    Conjunction,
    Constant,
    CurrentTime,
    Lambda,
    Reference,
    SortItem,
    UnnestedList,
    WindowCall,
)
from millpond.sql.bound.relations import (
    BoundAggregate,
    BoundCte,
    BoundCteReference,
    BoundDistinct,
    BoundFilter,
    BoundFirstRanks,
    BoundGet,
    BoundInnerJoins,
    BoundJoin,
    BoundLimit,
    BoundListFunction,
    BoundMarkJoin,
    BoundOrder,
    BoundPick,
    BoundProduct,
    BoundProject,
    BoundRelation,
    BoundSetOperation,
    BoundTopN,
    BoundUnnest,
    BoundWindow,
)


def relation_text(node: BoundRelation, depth: int = 0) -> str:
    """Return a line for each node, its inputs below it; the columns that are read stand in brackets."""
    read = "" if node.read is None else f" [{_places(sorted(node.read))}]"
    own = f"{'  ' * depth}{_name(node)}{_what(node)}{read}"
    return "\n".join([own, *(relation_text(one, depth + 1) for one in node.inputs)])


def _name(node: BoundRelation) -> str:
    words = "".join(f" {c.lower()}" if c.isupper() else c for c in type(node).__name__.removeprefix("Bound"))
    return words.strip()


def _what(node: BoundRelation) -> str:
    match node:
        case BoundGet():
            return f" {node.table} ({_places(node.columns)})"
        case BoundProject():
            return f" {_listed(node.outputs)}"
        case BoundPick():
            return f" {_places(node.places)}"
        case BoundFilter():
            shown = f" showing {_places(node.shown)}" if node.shown else ""
            return f" {' and '.join(map(expression_text, node.conditions))}{shown}"
        case BoundAggregate():
            by = f" by {_listed(node.groups)}" if node.groups else ""
            sets = f" sets {node.sets}" if len(node.sets) > 1 else ""
            return f" {_listed(node.calls)}{by}{sets}"
        case BoundWindow():
            return f" {_listed(node.calls)}"
        case BoundFirstRanks():
            return f" {expression_text(node.call)} <= {node.last}"
        case BoundUnnest():
            return f" {_listed(node.lists)}"
        case BoundListFunction():
            return f" {node.name} of {len(node.argument_types)} passing {_places(node.passed)}"
        case BoundOrder():
            return f" by {_sorted(node.orders)}"
        case BoundLimit():
            return f" {node.rows} offset {node.offset}"
        case BoundTopN():
            return f" {node.rows} offset {node.offset} by {_sorted(node.orders) or 'all'}"
        case BoundDistinct():
            return "" if node.targets is None else f" on {_listed(node.targets)} by {_sorted(node.orders)}"
        case BoundJoin():
            return _join(node)
        case BoundInnerJoins():
            return _inner_joins(node)
        case BoundProduct():
            return f" where {' and '.join(map(expression_text, node.conditions))}" if node.conditions else ""
        case BoundSetOperation():
            return f" {node.word.lower()}{' all' if node.all else ''}"
        case BoundCte() | BoundCteReference():
            return f" {node.index}"
    return ""


def _join(node: BoundJoin) -> str:
    width = node.left.width
    asked = [f"{expression_text(a)} {how} {expression_text(b, width)}" for a, b, how in node.pairs]
    asked += map(expression_text, node.rest)
    decided = "" if not isinstance(node, BoundMarkJoin) or node.decided is None else f" kept {node.decided}"
    return f" {node.kind.lower()} on {' and '.join(asked) or 'true'}{decided}"


def _inner_joins(node: BoundInnerJoins) -> str:
    found = []
    for join in node.joins:
        asked = [f"{expression_text(a)} {how} {expression_text(b)}" for a, b, how in join.pairs]
        asked += map(expression_text, join.others)
        found.append(f"({join.left}, {join.right}) on {' and '.join(asked) or 'true'}")
    rest = f" where {' and '.join(map(expression_text, node.conditions))}" if node.conditions else ""
    return f" {', '.join(found)}{rest}"


def _listed(nodes: Sequence[BoundExpression]) -> str:
    return ", ".join(map(expression_text, nodes))


def _sorted(items: Sequence[SortItem]) -> str:
    return ", ".join(f"{expression_text(o.expression)}{' desc' if o.descending else ''}" for o in items)


def _places(places: Sequence[int]) -> str:
    return ", ".join(map(str, places))


def expression_text(node: BoundExpression, first: int = 0) -> str:
    """Return an expression as text; casts are left out, and #n is column n, counted from `first`."""

    def inner(child: BoundExpression) -> str:
        return expression_text(child, first)

    match node:
        case Reference():
            return f"#{node.index + first}"
        case Constant():
            return "null" if node.value is None else repr(node.value)
        case CurrentTime():
            return "proctime()" if node.stamp else "now()"
        case Cast():
            return inner(node.argument)
        case Comparison():
            return f"{inner(node.left)} {node.how} {inner(node.right)}"
        case Conjunction():
            return f"({f' {node.word.lower()} '.join(map(inner, node.parts))})"
        case BoundCase():
            checks = " ".join(f"when {inner(w)} then {inner(t)}" for w, t in node.checks)
            return f"case {checks} else {inner(node.otherwise)} end"
        case BoundOperator():
            return f"{node.kind.removeprefix('OPERATOR_').lower()}({', '.join(map(inner, node.arguments))})"
        case BoundFunction():
            return f"{node.name}({', '.join(map(inner, node.arguments))})"
        case Lambda():
            return f"lambda/{node.parameters}"
        case UnnestedList():
            return inner(node.list)
        case AggregateCall():
            given = "" if node.filter is None else f" filter {inner(node.filter)}"
            listed = ", ".join(map(inner, node.arguments))
            return f"{node.name}({'distinct ' if node.distinct else ''}{listed}){given}"
        case WindowCall():
            by = f" by {', '.join(map(inner, node.partitions))}" if node.partitions else ""
            order = f" order {_sorted(node.orders)}" if node.orders else ""
            name = node.name or node.kind.removeprefix("WINDOW_").lower()
            return f"{name}({', '.join(map(inner, node.arguments))}) over{by}{order}"
    return node.called
