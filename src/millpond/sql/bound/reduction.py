"""Shortens bound expressions as they are read: branches that no row takes, and calls of lambdas.

The macros of a dialect leave both behind: a check of a type is a constant once the query is bound, and
`invoke(lambda a: f(a), x)` names an argument that is used several times.
Law: the short expression computes the same, and evaluates nothing that the long one does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from millpond.sql.bound.expressions import (
    BoundCase,
    BoundExpression,
    BoundFunction,
    BoundOperator,
    Conjunction,
    Constant,
    Lambda,
    Reference,
)

_LAZY = ("OPERATOR_COALESCE", "OPERATOR_TRY")


def without_dead_branches(case: BoundCase) -> BoundExpression:
    """A CASE without the branches whose condition is never true."""
    checks = tuple((when, then) for when, then in case.checks if not _is_never_true(when))
    if len(checks) == len(case.checks):
        return case
    if not checks and case.otherwise.type == case.type:
        return replace(case.otherwise, alias=case.alias, at=case.at)
    return BoundCase(checks, case.otherwise, type=case.type, alias=case.alias, at=case.at) if checks else case


def _is_never_true(condition: BoundExpression) -> bool:
    match condition:
        case Constant():
            return condition.value is None or condition.value is False
        case BoundOperator(kind="OPERATOR_IS_NULL", arguments=(Constant() as only,)):
            return only.value is not None
        case Conjunction(word="OR"):
            return all(map(_is_never_true, condition.parts))
    return False


def applied(call: BoundFunction) -> BoundExpression:
    """The body of the lambda that `invoke` calls, over the arguments, if none is computed twice by that."""
    if call.name != "invoke":
        return call
    code = call.arguments[0]
    assert isinstance(code, Lambda), code
    given, around = call.arguments[1 : 1 + code.parameters], call.arguments[1 + code.parameters :]
    inside = (*reversed(given), *around)
    used = list(_references(code.body, lazy=False))
    for place, value in enumerate(inside):
        if not isinstance(value, Reference | Constant):
            found = [lazy for index, lazy in used if index == place]
            if found not in ([], [False]):
                return call
    return replace(_substituted(code.body, inside), alias=call.alias, at=call.at)


def _references(node: BoundExpression, *, lazy: bool) -> Iterator[tuple[int, bool]]:
    """The references in an expression; is each evaluated for some rows only, or for elements of a list?"""
    if isinstance(node, Reference):
        yield node.index, lazy
    lazy = (
        lazy
        or isinstance(node, BoundCase | Conjunction)
        or (isinstance(node, BoundOperator) and node.kind in _LAZY)
        or any(isinstance(child, Lambda) for child in node.children)
    )
    for child in node.children:
        yield from _references(child, lazy=lazy)


def _substituted(node: BoundExpression, values: Sequence[BoundExpression]) -> BoundExpression:
    """An expression with values in place of its references; the body of a lambda in it has its own."""
    if isinstance(node, Reference):
        return values[node.index]
    if not node.children:
        return node
    return node.with_children([_substituted(child, values) for child in node.children])
