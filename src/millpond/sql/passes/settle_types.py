"""Decides what depends on types only, as the functions of a dialect write it.

    struct_extract(row(case when 'INTEGER' in ('DOUBLE', 'FLOAT') then x end, y), 2)   =   y

Law: only conditions over constants are decided, and only those that this module knows; the rest stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millpond.sql.bound.expressions import (
    BoundCase,
    BoundExpression,
    BoundFunction,
    BoundOperator,
    Cast,
    Comparison,
    Conjunction,
    Constant,
    mapped,
)
from millpond.sql.bound.relations import BoundAggregate, BoundFilter, BoundProject, BoundRelation, rebuilt


def settle_types(relation: BoundRelation) -> BoundRelation:
    return rebuilt(relation, _settled_node)


def _settled_node(node: BoundRelation) -> BoundRelation:
    if isinstance(node, BoundProject):
        return replace(node, outputs=tuple(map(settled, node.outputs)))
    if isinstance(node, BoundFilter):
        return replace(node, conditions=tuple(map(settled, node.conditions)))
    if isinstance(node, BoundAggregate):
        groups, calls = map(settled, node.groups), (mapped(call, settled) for call in node.calls)
        return replace(node, groups=tuple(groups), calls=tuple(calls))  # type: ignore[arg-type]
    return node


def settled(node: BoundExpression) -> BoundExpression:
    node = mapped(node, settled)
    found: BoundExpression | None = None
    if isinstance(node, BoundCase):
        found = _case(node)
    elif isinstance(node, BoundFunction) and node.name == "struct_extract" and len(node.arguments) == 2:
        row, place = node.arguments
        place = place.argument if isinstance(place, Cast) else place
        if isinstance(row, BoundFunction) and row.name == "row" and isinstance(place, Constant):
            at = place.value
            found = row.arguments[at - 1] if isinstance(at, int) and 0 < at <= len(row.arguments) else None
    if found is None or found is node or found.type != node.type:
        return node
    return replace(found, alias=node.alias, at=found.at or node.at)


def _case(node: BoundCase) -> BoundExpression:
    checks: list[tuple[BoundExpression, BoundExpression]] = []
    for condition, result in node.checks:
        holds = truth(condition)
        if holds is True and not checks:
            return result
        if holds is not False:
            checks.append((condition, result))
    if not checks:
        return node.otherwise
    return node if len(checks) == len(node.checks) else replace(node, checks=tuple(checks))


def truth(node: BoundExpression) -> bool | None:
    """Whether a condition over constants holds; None if this is not known here."""
    match node:
        case Constant(value=bool() as value):
            return value
        case Comparison(how="=", left=left, right=right):
            return _compared(left, right, lambda a, b: a == b)
        case Comparison(how="<>", left=left, right=right):
            return _compared(left, right, lambda a, b: a != b)
        case Conjunction(word=word, parts=parts):
            found = [truth(part) for part in parts]
            decides = word == "OR"
            if decides in found:
                return decides
            return None if None in found else not decides
        case BoundOperator(kind="OPERATOR_NOT", arguments=(one,)):
            inner = truth(one)
            return None if inner is None else not inner
        case BoundOperator(kind="OPERATOR_IS_NULL", arguments=(Constant(value=value),)):
            return value is None
        case BoundOperator(kind="COMPARE_IN", arguments=(one, *others)):
            equal = [_compared(one, other, lambda a, b: a == b) for other in others]
            return None if None in equal else any(equal)
        case BoundFunction(name="contains", arguments=(one, part)):
            return _compared(one, part, str.__contains__)
        case BoundFunction(name="suffix", arguments=(one, end)):
            return _compared(one, end, str.endswith)
        case BoundFunction(name="~~", arguments=(one, pattern)):
            return _compared(one, pattern, _is_like)
    return None


def _compared(
    one: BoundExpression, two: BoundExpression, how: Callable[[str, str], bool | None]
) -> bool | None:
    a, b = _text(one), _text(two)
    return None if a is None or b is None else how(a, b)


def _text(node: BoundExpression) -> str | None:
    """The text that a constant is."""
    if isinstance(node, Cast) and node.type == node.argument.type:
        node = node.argument
    return node.value if isinstance(node, Constant) and isinstance(node.value, str) else None


def _is_like(text: str, pattern: str) -> bool | None:
    """LIKE with `%` at the end only."""
    start = pattern.removesuffix("%")
    return text.startswith(start) if start != pattern and not {"%", "_"} & set(start) else None
