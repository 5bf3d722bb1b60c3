"""Renders bound expressions as SQL text over named columns.

DuckDB's binder has already resolved every name, overload and cast.  The text has the same meaning wherever
it runs: a reference is cast back to its logical type where the state stores another type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millpond.sql.binding.types import quoted, restored
from millpond.sql.bound.clock import is_clock, refuse_clock
from millpond.sql.bound.expressions import (
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
)
from millpond.sql.lowering.literals import literal
from millpond.sql.refusal import refuse

_INFIX = frozenset(
    [
        *("+", "-", "*", "/", "//", "%", "**", "^", "||", "&", "|", "<<", ">>", "->>", "->"),
        *("~~", "!~~", "~~*", "!~~*", "~~~", "=", "<>", "!=", "<", "<=", ">", ">="),
        *("IS NOT DISTINCT FROM", "IS DISTINCT FROM", "@>", "<@", "&&", "^@", "<->", "<=>", "<#>"),
    ]
)
_PREFIX = frozenset(["-", "+", "~", "@"])


@dataclass(frozen=True)
class StepColumn:
    """A column of a step under construction: its name in the step and its logical type."""

    name: str
    type: str

    @property
    def sql(self) -> str:
        return f"CAST({quoted(self.name)} AS {self.type})" if restored(self.type) else quoted(self.name)


@dataclass(frozen=True)
class _Parameter:
    """An expression that replaces a column reference inside a lambda."""

    sql: str
    depth: int  # the number of lambdas around that lambda


_Columns = Sequence[StepColumn | _Parameter]


def render(node: BoundExpression, columns: _Columns) -> str:
    """Render an expression over these columns as SQL text."""
    match node:
        case Reference():
            return columns[node.index].sql
        case Constant():
            return literal(node)
        case Conjunction():
            return f"({f' {node.word} '.join(render(c, columns) for c in node.parts)})"
        case BoundCase():
            checks = " ".join(
                f"WHEN {render(when, columns)} THEN {render(then, columns)}" for when, then in node.checks
            )
            return f"CASE {checks} ELSE {render(node.otherwise, columns)} END"
        case BoundOperator():
            return _operator(node, [render(c, columns) for c in node.arguments])
        case CurrentTime():
            refuse_clock(node)
        case Cast():
            if is_clock(node):
                refuse_clock(node)
            word = "TRY_CAST" if node.attempt else "CAST"
            return f"{word}({render(node.argument, columns)} AS {node.type})"
        case Comparison():
            return f"({render(node.left, columns)} {node.how} {render(node.right, columns)})"
        case BoundFunction():
            return _function(node, columns)
    refuse(node.called, "is not supported in a materialized view", node.at)


def _operator(node: BoundOperator, parts: list[str]) -> str:
    match node.kind:
        case "COMPARE_IN":
            return f"({parts[0]} IN ({', '.join(parts[1:])}))"
        case "COMPARE_NOT_IN":
            return f"({parts[0]} NOT IN ({', '.join(parts[1:])}))"
        case "OPERATOR_NOT":
            return f"(NOT {parts[0]})"
        case "OPERATOR_IS_NULL":
            return f"({parts[0]} IS NULL)"
        case "OPERATOR_IS_NOT_NULL":
            return f"({parts[0]} IS NOT NULL)"
        case "OPERATOR_COALESCE":
            return f"COALESCE({', '.join(parts)})"
        case "OPERATOR_TRY":
            return f"TRY({parts[0]})"
    refuse(node.called, "is not supported in a materialized view", node.at)


def _function(node: BoundFunction, columns: _Columns) -> str:
    for place, child in enumerate(node.arguments):
        if isinstance(child, Lambda):
            return _with_lambda(node, child, columns, place)
    text = _call(node, [render(c, columns) for c in node.arguments])
    # The binder has already cast the arguments, so binding the text again would widen the result: 1 - b
    # would get one digit more than the plan says.
    return f"CAST({text} AS {node.type})" if node.type.startswith("DECIMAL") else text


def _call(node: BoundFunction, parts: list[str]) -> str:
    name = node.name
    if name in _INFIX and len(parts) == 2:
        return f"({parts[0]} {name} {parts[1]})"
    if name in _PREFIX and len(parts) == 1:
        return f"({name}{parts[0]})" if name != "@" else f"abs({parts[0]})"
    if name == "__between":  # DuckDB's, where the value must be computed once only
        return f"({parts[0]} BETWEEN {parts[1]} AND {parts[2]})"
    if name == "!__postfix":
        return f"factorial({parts[0]})"
    if node.named:
        plain = len(parts) - len(node.named)
        parts = parts[:plain] + [
            f"{quoted(n)} := {p}" for n, p in zip(node.named, parts[plain:], strict=True)
        ]
    if name == "struct_extract" and len(parts) == 2:
        return f"struct_extract({parts[0]}, {parts[1]})"
    return f"{quoted(name)}({', '.join(parts)})"


def _with_lambda(node: BoundFunction, maker: Lambda, columns: _Columns, place: int) -> str:
    """Render a function of a list and a lambda; captured values follow as extra arguments."""
    kids = node.arguments
    initial = 1 if node.has_initial else 0
    if node.name == "invoke":
        initial = maker.parameters
    depth = max((c.depth + 1 for c in columns if isinstance(c, _Parameter)), default=0)
    around = [_Parameter(render(c, columns), depth) for c in kids[place + 1 + initial :]]
    names = [f"p{depth}_{n}" for n in range(maker.parameters)]
    inside = [*(_Parameter(n, depth) for n in reversed(names)), *around]
    given = [render(c, columns) for c in kids[:place]]
    given.append(f"lambda {', '.join(names)}: {render(maker.body, inside)}")
    given += [render(c, columns) for c in kids[place + 1 : place + 1 + initial]]
    return f"{quoted(node.name)}({', '.join(given)})"
