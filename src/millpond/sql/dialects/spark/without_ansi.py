"""Spark without ANSI mode: integers wrap around, and what cannot be computed or cast is NULL.

Law: a function is here if its meaning depends on the mode; every other one is that of ANSI mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from sqlglot import exp

from millpond.sql.dialects.spark.aggregates import AGGREGATES, SparkAggregate
from millpond.sql.dialects.spark.expressions import Expressions, digits_shown, is_struct
from millpond.sql.dialects.spark.generators import is_raw, raw
from millpond.sql.dialects.spark.queries import Queries

_OPERATORS = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%"}
_COMPARISONS = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_NAMES = {  # functions that are called by another name
    **{name: f"lax_{name}" for name in ("abs", "pmod", "next_day", "make_date", "to_timestamp_ntz")},
    **dict.fromkeys(("size", "cardinality"), "lax_size"),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), "lax_unix_timestamp"),
    **dict.fromkeys(("to_timestamp", "to_timestamp_ltz"), "try_to_timestamp"),
    **{
        name: f"try_{name}"
        for name in ("to_date", "make_timestamp", "make_timestamp_ltz", "make_timestamp_ntz")
    },
    "conv": "lax_conv",
    "element_at": "try_element_at",
    "parse_url": "try_parse_url",
}
# What arguments are: numbers, dates and times, which are NULL where a text is none.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    **{
        name: ("number", "number")
        for name in (
            *(
                "abs",
                "sqrt",
                "exp",
                "ln",
                "log",
                "log2",
                "log10",
                "log1p",
                "expm1",
                "cbrt",
                "pow",
                "power",
                "hypot",
            ),
            *(
                "sin",
                "cos",
                "tan",
                "asin",
                "acos",
                "atan",
                "atan2",
                "sinh",
                "cosh",
                "tanh",
                "asinh",
                "acosh",
                "atanh",
            ),
            *("cot", "csc", "sec", "degrees", "radians", "rint", "sign", "signum", "isnan", "nanvl", "pmod"),
        )
    },
    **{name: ("number",) for name in ("ceil", "ceiling", "floor", "round", "bround", "positive", "negative")},
    **{
        name: ("date",)
        for name in (
            *(
                "year",
                "quarter",
                "month",
                "day",
                "dayofmonth",
                "dayofweek",
                "weekday",
                "dayofyear",
                "weekofyear",
            ),
            *("dayname", "monthname", "add_months", "last_day", "next_day", "trunc", "unix_date", "date_sub"),
        )
    },
    "date_add": ("date",),
    "datediff": ("date", "date"),
    "date_diff": ("date", "date"),
    "months_between": ("time", "time"),
    **{
        name: ("time",)
        for name in ("hour", "minute", "second", "date_format", "from_utc_timestamp", "to_utc_timestamp")
    },
    **{name: ("time",) for name in ("unix_seconds", "unix_millis", "unix_micros")},
    "date_trunc": ("", "time"),
    "date_part": ("", "time"),
    "datepart": ("", "time"),
}


def _lax(known: SparkAggregate) -> SparkAggregate:
    def changed(text: str) -> str:
        text = text.replace("__spark.summand", "__spark.lax_summand")
        text = text.replace("__spark.sum_result", "__spark.lax_sum_result")
        return text.replace("__spark.cast_double", "__spark.try_cast_double")

    return replace(
        known,
        core=changed(known.core),
        result=changed(known.result),
        beside=tuple(
            changed(one.replace("count({0})", "count(__spark.summand({0}))")) for one in known.beside
        ),
    )


class LaxExpressions(Expressions):
    """Writes the expressions of one statement of Spark without ANSI mode."""

    aggregates: ClassVar[Mapping[str, SparkAggregate]] = {n: _lax(a) for n, a in AGGREGATES.items()}

    def text(self, node: exp.Expr) -> str:
        kind = type(node)
        if is_raw(node):
            return node.name
        if kind in _OPERATORS:
            digits = f"{digits_shown(node.this)}, {digits_shown(node.expression)}"
            left, right = self._number(node.this), self._number(node.expression)
            return f'__spark."lax_{_OPERATORS[kind]}"({left}, {right}, {digits})'
        if kind is exp.IntDiv:
            return f"__spark.lax_div({self._number(node.this)}, {self._number(node.expression)})"
        if kind in _COMPARISONS and not any(map(is_struct, (node.this, node.expression))):
            return self._compared(node.this, _COMPARISONS[kind], node.expression)
        return super().text(node)

    def quotient(self, left: exp.Expr, right: exp.Expr, *, lenient: bool = False) -> str:
        given = f"{self._number(left)}, {self._number(right)}, {digits_shown(left)}, {digits_shown(right)}"
        return f"__spark.lax_divided({given})"

    def _number(self, node: exp.Expr) -> str:
        return self.term(node) if _is_number(node) else f"__spark.lax_number({self.term(node)})"

    def _compared(self, left: exp.Expr, sign: str, right: exp.Expr) -> str:
        a, b = self.operand(left), self.operand(right)
        if _is_typed_alone(left) or _is_typed_alone(right):
            return f"({a} {sign} {b})"
        return f"(__spark.lax_side({a}, {b}) {sign} __spark.lax_side({b}, {a}))"

    def _literal(self, node: exp.Literal) -> str:
        """A text is no number, whatever stands beside it."""
        made = super()._literal(node)
        return f"{made}::varchar" if node.is_string else made

    def _between(self, node: exp.Between) -> str:
        low = self._compared(node.this, ">=", node.args["low"])
        return f"({low} AND {self._compared(node.this, '<=', node.args['high'])})"

    def _in(self, node: exp.In) -> str:
        listed = [one for one in (node.this, *node.expressions) if isinstance(one, exp.Literal)]
        if len({one.is_string for one in listed}) > 1:
            self.refuse(
                exp.Var(this="IN"), "of texts and numbers is not supported without ANSI mode", "cast one side"
            )
        return super()._in(node)

    def _neg(self, node: exp.Expr) -> str:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return super()._neg(node)
        return f"__spark.lax_negative({self._number(node.this)})"

    def _bracket(self, node: exp.Bracket) -> str:
        made = super()._bracket(node)
        return made.replace('__spark."[]"', '__spark."lax_[]"', 1)

    def cast_prefix(self, kind: str, lenient: bool) -> str:
        return "lax_" if kind in _INTEGERS and not lenient else "try_"

    def call(self, name: str, given: Sequence[exp.Expr], node: exp.Expr) -> str:
        kinds = _ARGUMENTS.get(name, ())
        if name in ("date_add", "datediff", "date_diff") and len(given) == 3:
            kinds = ()
        made = [self._argument(one, kind) for one, kind in zip(given, kinds, strict=False)]
        given = [*made, *given[len(made) :]]
        if name == "negative":
            return f"__spark.lax_negative({self.text(given[0])})"
        if name == "mod" and len(given) == 2:
            return self.text(exp.Mod(this=given[0].copy(), expression=given[1].copy()))
        if name == "elt" and len(given) > 1:
            listed = ", ".join(f"__spark.cast_string({self.text(g)})" for g in given[1:])
            return f"__spark.lax_elt({self.text(given[0])}, [{listed}])"
        return super().call(_NAMES.get(name, name), given, node)

    def _argument(self, node: exp.Expr, kind: str) -> exp.Expr:
        return raw(f"__spark.lax_{kind}({self.operand(node)})") if kind and not _is_number(node) else node


def _is_number(node: exp.Expr) -> bool:
    bare = node.this if isinstance(node, exp.Neg) else node
    return isinstance(bare, exp.Literal) and not bare.is_string


def _is_typed_alone(node: exp.Expr) -> bool:
    """Is this a query, whose type is not known when a function of Spark is chosen?"""
    return node.find(exp.Subquery, exp.Select) is not None


class LaxQueries(Queries):
    """Writes one statement of Spark without ANSI mode."""

    writer = LaxExpressions
