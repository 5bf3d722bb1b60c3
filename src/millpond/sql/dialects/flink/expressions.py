"""Writes expressions of Flink as DuckDB's SQL.

Law: Flink and Spark compute with the same Java rules (text, patterns, decimals, casts), so what Flink means
is a function of `__spark` unless it is written here or in `functions.sql`; a function that neither
`functions.py` names nor a user defined is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from sqlglot import exp

from millpond.sql.dialects.flink.functions import AGGREGATES, call
from millpond.sql.dialects.spark.aggregates import SparkAggregate
from millpond.sql.dialects.spark.expressions import Expressions, digits_shown
from millpond.sql.dialects.spark.types import duckdb_type
from millpond.sql.refusal import pointing

_T = exp.DataType.Type
HINT = "write this query in the default dialect"
_FIELDS = {
    **{name: name.lower() for name in ("YEAR", "QUARTER", "MONTH", "WEEK", "HOUR", "MINUTE", "SECOND")},
    "DAY": "dayofmonth",
    "DOY": "dayofyear",
}


class FlinkExpressions(Expressions):
    """Writes the expressions of one statement of Flink."""

    dialect = "flink"
    aggregates: ClassVar[Mapping[str, SparkAggregate]] = AGGREGATES

    def text(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Add | exp.Sub) and (shifted := self._shifted(node)) is not None:
            return shifted
        return super().text(node)

    def _shifted(self, node: exp.Add | exp.Sub) -> str | None:
        """A time moved by an interval keeps its type."""
        moved, by = node.this, node.expression
        if isinstance(node, exp.Add) and isinstance(moved, exp.Interval):
            moved, by = by, moved
        if not isinstance(by, exp.Interval):
            return None
        sign = "+" if isinstance(node, exp.Add) else "-"
        of = self.text(moved)
        return f"cast_to_type({of} {sign} {self.text(by)}, {of})"

    def _div(self, node: exp.Div) -> str:
        digits = f"{digits_shown(node.this)}, {digits_shown(node.expression)}"
        return f'__flink."/"({self.term(node.this)}, {self.term(node.expression)}, {digits})'

    def cast(self, value: str, to: exp.Expr, node: exp.Expr, *, lenient: bool, depth: int = 0) -> str:
        if isinstance(to, exp.DataType) and to.this == _T.TEXT:
            return f"__flink.cast_string({value})"
        if isinstance(to, exp.DataType) and to.this in (_T.TIMESTAMPNTZ, _T.TIMESTAMPLTZ):
            _require_digits(to, self, node)
        text = isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string
        if text and not lenient and isinstance(to, exp.DataType) and to.this in (_T.DATE, _T.TIMESTAMPNTZ):
            return f"{duckdb_type(to)} {value}"  # a literal
        return super().cast(value, to, node, lenient=lenient, depth=depth)

    def call(self, name: str, given: Sequence[exp.Expr], node: exp.Expr) -> str:
        return call(name, list(given), node, self)

    def _extract(self, node: exp.Extract) -> str:
        field = _FIELDS.get(node.this.name.upper())
        if field is None:
            self.refuse(node, f"of {node.this.name.upper()} is not supported")
        return f"__spark.{field}({self.text(node.expression)})"

    def _bracket(self, node: exp.Bracket) -> str:
        made = node.this
        if isinstance(made, exp.Column) and not made.this.args.get("quoted"):
            if made.name.upper() == "ARRAY":
                return f"[{', '.join(self.operand(e) for e in node.expressions)}]"
            if made.name.upper() == "MAP" and len(node.expressions) % 2 == 0:
                keys, values = self.texts(node.expressions[::2]), self.texts(node.expressions[1::2])
                return f"__spark.map_of([{keys}], [{values}])"
        places = node.expressions
        if len(places) != 1 or not isinstance(places[0], exp.Literal):
            raise pointing("[…] of the dialect 'flink' needs a constant", self.sql, None, HINT)
        if places[0].is_int and int(places[0].name) < 1:
            raise pointing("the first element of the dialect 'flink' is [1]", self.sql, None, HINT)
        return f"__spark.element_at({self.text(made)}, {self.text(places[0])})"

    def _unnest(self, node: exp.Unnest) -> str:
        if len(node.expressions) != 1 or node.args.get("offset"):
            self.refuse(node)
        alias = node.args.get("alias")
        named = "" if alias is None else f" AS {alias.sql('duckdb', identify=True)}"
        return f"unnest({self.text(node.expressions[0])}){named}"

    def _withingroup(self, node: exp.WithinGroup) -> str:
        self.refuse(node)


def _require_digits(kind: exp.DataType, writer: Expressions, node: exp.Expr) -> None:
    """Times have microseconds here."""
    if kind.expressions and int(kind.expressions[0].this.name) > 6:
        writer.refuse(node, "has more than six digits of a second", "use TIMESTAMP(6)")
