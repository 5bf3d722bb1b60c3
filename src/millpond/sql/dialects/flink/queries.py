"""Writes queries and changes of Flink: Spark's clauses, with Flink's windows, joins and names of columns."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.dialects.flink import group_windows
from millpond.sql.dialects.flink.expressions import FlinkExpressions
from millpond.sql.dialects.flink.window_calls import KINDS
from millpond.sql.dialects.spark.generators import raw
from millpond.sql.dialects.spark.queries import Queries

_WINDOW_TIME = "window_time"


class FlinkQueries(Queries):
    """Writes one statement of Flink."""

    writer = FlinkExpressions

    def value_name(self, place: int) -> str:
        return f"EXPR${place}"

    def prepare(self, node: exp.Select) -> None:
        if node.args.get("laterals"):
            self.expressions.refuse(exp.Var(this="LATERAL"), hint="use CROSS JOIN UNNEST")
        assert isinstance(self.expressions, FlinkExpressions)
        group_windows.expand(node, self.expressions)
        for place, one in enumerate(node.expressions):
            if not isinstance(one, exp.Alias | exp.Column | exp.Dot | exp.Star):
                named = exp.Alias(this=one.copy(), alias=exp.to_identifier(f"EXPR${place}", quoted=True))
                one.replace(named)
        node.meta[_WINDOW_TIME] = _shows_window_time(node)
        for join in node.args.get("joins") or []:
            if isinstance(join.this, exp.Unnest):
                join.set("this", raw(self.expressions.text(join.this)))
        super().prepare(node)

    def table(self, node: exp.Table) -> None:
        version = node.args.get("version")
        if version is not None:
            self._as_of_now(node, version)
        select = node.parent_select
        windowed = isinstance(node.this, exp.Anonymous) and str(node.this.name).upper() in KINDS
        if windowed and select is not None and select.meta.get(_WINDOW_TIME):
            call = self.expressions.text(node.this)
            later = "window_end - INTERVAL '1 millisecond' AS window_time"
            node.set("this", raw(f"(SELECT *, {later} FROM {call})"))
            return
        super().table(node)

    def _as_of_now(self, node: exp.Table, version: exp.Expr) -> None:
        at = version.expression
        if not isinstance(at, exp.Anonymous) or str(at.name).lower() != "proctime":
            self.expressions.refuse(
                exp.Var(this="SYSTEM_TIME"),
                "joins as of a time in the rows, which is not supported",
                "write FOR SYSTEM_TIME AS OF PROCTIME(), or ASOF JOIN in the default dialect",
            )
        node.set("version", None)
        alias = node.args.get("alias")
        name = (
            node.sql("duckdb", identify=True)
            if alias is None
            else exp.Table(this=node.this).sql("duckdb", identify=True)
        )
        node.set("this", raw(f"{name} FOR SYSTEM_TIME AS OF PROCTIME()"))


def _shows_window_time(select: exp.Select) -> bool:
    """Does the query read the third column that Flink's windows have?"""
    if any(isinstance(e, exp.Star) or (isinstance(e, exp.Column) and e.is_star) for e in select.expressions):
        return True
    return any(c.name.lower() == _WINDOW_TIME for c in select.find_all(exp.Column))
