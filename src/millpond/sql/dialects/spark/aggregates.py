"""Aggregates and window functions of Spark.

A macro cannot take DISTINCT, FILTER or OVER, so the aggregate is DuckDB's, and what Spark does otherwise is
done to its arguments or around its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from millpond.kernels.duck import quoted

if TYPE_CHECKING:
    from millpond.sql.dialects.spark.expressions import Expressions


@dataclass(frozen=True)
class SparkAggregate:
    """DuckDB's aggregate over the arguments, the rows it takes, and what is done to the result."""

    core: str  # of the arguments {0}, {1}, …
    arity: int = 1
    result: str = "{}"
    rows: str | None = None  # a condition on the rows
    beside: tuple[str, ...] = ()  # other aggregates of the same rows: further {} of the result


_TYPE = "CASE WHEN false THEN __spark.summand({0}) ELSE NULL::decimal(1, 0) END"  # of the argument's type
_NUMBER = "__spark.cast_double({0})"
_PAIR = "__spark.cast_double({0}), __spark.cast_double({1})"
AGGREGATES: dict[str, SparkAggregate] = {
    "count": SparkAggregate("count({0})"),
    "sum": SparkAggregate(
        "sum(__spark.summand({0}))", result="__spark.sum_result({}, {})", beside=("max(" + _TYPE + ")",)
    ),
    "try_sum": SparkAggregate(
        "sum(__spark.summand({0}))", result="__spark.try_sum_result({}, {})", beside=("max(" + _TYPE + ")",)
    ),
    **dict.fromkeys(
        ("avg", "mean", "try_avg"),
        SparkAggregate(
            "sum(__spark.summand({0}))",
            result="__spark.average_of({}, {}, {})",
            beside=("count({0})", "max(" + _TYPE + ")"),
        ),
    ),
    "min": SparkAggregate("min({0})"),
    "max": SparkAggregate("max({0})"),
    **dict.fromkeys(("stddev", "std", "stddev_samp"), SparkAggregate(f"stddev_samp({_NUMBER})")),
    "stddev_pop": SparkAggregate(f"stddev_pop({_NUMBER})"),
    **dict.fromkeys(("variance", "var_samp"), SparkAggregate(f"var_samp({_NUMBER})")),
    "var_pop": SparkAggregate(f"var_pop({_NUMBER})"),
    "skewness": SparkAggregate(
        f"skewness({_NUMBER})",
        result="__spark.skewness_of({}, {}, {})",
        beside=(f"count({_NUMBER})", f"var_pop({_NUMBER})"),
    ),
    "kurtosis": SparkAggregate(f"kurtosis_pop({_NUMBER})"),
    "corr": SparkAggregate(
        f"corr({_PAIR})",
        2,
        result="CASE WHEN {1} <> 0 AND {2} <> 0 THEN {0} END",
        beside=(f"regr_sxx({_PAIR})", f"regr_syy({_PAIR})"),
    ),
    "covar_pop": SparkAggregate(f"covar_pop({_PAIR})", 2),
    "covar_samp": SparkAggregate(f"covar_samp({_PAIR})", 2),
    **{
        n: SparkAggregate(f"{n}({_PAIR})", 2)
        for n in (
            "regr_avgx",
            "regr_avgy",
            "regr_intercept",
            "regr_r2",
            "regr_slope",
            "regr_sxx",
            "regr_sxy",
            "regr_syy",
        )
    },
    "regr_count": SparkAggregate("regr_count({0}, {1})", 2),
    **dict.fromkeys(("bool_and", "every"), SparkAggregate("bool_and({0})")),
    **dict.fromkeys(("bool_or", "any", "some"), SparkAggregate("bool_or({0})")),
    "bit_and": SparkAggregate("bit_and({0})"),
    "bit_or": SparkAggregate("bit_or({0})"),
    "bit_xor": SparkAggregate("bit_xor({0})"),
    "count_if": SparkAggregate("count(*)", rows="{0}"),
    **dict.fromkeys(
        ("collect_list", "array_agg"),
        SparkAggregate("list({0})", rows="{0} IS NOT NULL", result="coalesce({}, [])"),
    ),
    "collect_set": SparkAggregate(
        "list(DISTINCT {0})", rows="{0} IS NOT NULL", result="list_sort(coalesce({}, []))"
    ),
    "collect_union": SparkAggregate(
        "list({0})", rows="{0} IS NOT NULL", result="list_sort(list_distinct(flatten(coalesce({}, []))))"
    ),
    "vector_sum": SparkAggregate(
        "list({0})", rows="{0} IS NOT NULL", result='"spark.vector_sum.1"({}, false)'
    ),
    "vector_avg": SparkAggregate(
        "list({0})", rows="{0} IS NOT NULL", result='"spark.vector_sum.1"({}, true)'
    ),
    "bitmap_construct_agg": SparkAggregate(
        "list(DISTINCT {0}::bigint)",
        rows="{0} IS NOT NULL",
        result='"spark.bitmap_construct.1"(coalesce({}, []))',
    ),
    "bitmap_or_agg": SparkAggregate(
        "list(DISTINCT {0})", rows="{0} IS NOT NULL", result='"spark.bitmap_or.1"(coalesce({}, []))'
    ),
    "bitmap_and_agg": SparkAggregate(
        "list(DISTINCT {0})", rows="{0} IS NOT NULL", result='"spark.bitmap_and.1"(coalesce({}, []))'
    ),
    "max_by": SparkAggregate("arg_max_null({0}, {1})", 2),
    "min_by": SparkAggregate("arg_min_null({0}, {1})", 2),
    **dict.fromkeys(("first", "first_value", "any_value"), SparkAggregate("first({0})")),
    **dict.fromkeys(("last", "last_value"), SparkAggregate("last({0})")),
    "percentile": SparkAggregate(f"quantile_cont({_NUMBER}, {{1}})", 2),
    "percentile_cont": SparkAggregate(f"quantile_cont({_NUMBER}, {{1}})", 2),
    "percentile_disc": SparkAggregate(f"quantile_disc({_NUMBER}, {{1}})", 2),
    "median": SparkAggregate(f"quantile_cont({_NUMBER}, 0.5)"),
    **dict.fromkeys(("percentile_approx", "approx_percentile"), SparkAggregate("quantile_disc({0}, {1})", 2)),
    "mode": SparkAggregate("mode({0})"),
    "approx_count_distinct": SparkAggregate("count(DISTINCT {0})"),
    **dict.fromkeys(
        ("string_agg", "listagg"), SparkAggregate("string_agg(__spark.cast_string({0}), {1})", 2)
    ),
    "grouping": SparkAggregate("grouping({0})"),
    "grouping_id": SparkAggregate("grouping({0})"),
}
WINDOWED = frozenset(
    ["row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value"]
)
_FIRST_OR_LAST = {
    "first": "first",
    "first_value": "first",
    "any_value": "first",
    "last": "last",
    "last_value": "last",
}
_OF_ORDER = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist")  # their arguments mean nothing


def written(
    name: str,
    given: Sequence[exp.Expr],
    writer: Expressions,
    *,
    where: exp.Expr | None = None,
    order: exp.Expr | None = None,
    ignore_nulls: bool = False,
    over: str = "",
) -> str | None:
    """The text of an aggregate; None if its arguments are not supported."""
    known = writer.aggregates[name]
    distinct = len(given) > 0 and isinstance(given[0], exp.Distinct)
    parts = list(given[0].expressions) + list(given[1:]) if distinct else list(given)
    if name in _FIRST_OR_LAST and len(parts) == 2:
        if not isinstance(parts[1], exp.Boolean):
            return None
        ignore_nulls, parts = ignore_nulls or bool(parts[1].this), parts[:1]
    if name == "count":
        return _counted(parts, distinct, writer, where, over)
    texts = [writer.text(p) for p in parts]
    if name in ("percentile_cont", "percentile_disc", "mode") and isinstance(order, exp.Order):
        item = order.expressions[0]
        fraction = texts[0] if texts else ""
        if len(order.expressions) != 1 or (item.args.get("desc") and name == "percentile_disc"):
            return None
        if name == "mode":
            how = None if parts or distinct else "list_reverse_sort" if item.args.get("desc") else "list_sort"
            return how and _first_mode(writer.text(item.this), how, writer, where, over)
        if item.args.get("desc"):
            fraction = f"(1 - {fraction})"
        texts, order = [writer.text(item.this), fraction][: known.arity], None
    if name in ("string_agg", "listagg") and len(texts) == 1:
        texts.append("''")
    if name in ("string_agg", "listagg") and isinstance(parts[-1], exp.Null):
        texts[1:] = ["''"]
    if name == "mode" and len(parts) == 2:
        if writer.text(parts[1]) != "true" or distinct:
            return None
        return _first_mode(texts[0], "list_sort", writer, where, over)
    if name in ("max_by", "min_by") and len(texts) == 3:
        if distinct or order is not None:
            return None
        core = f"arg_{name[:3]}(struct_pack(v := {texts[0]}), {texts[1]}, {texts[2]})"
        filtered = "" if where is None else f" FILTER (WHERE {writer.text(where)})"
        return f"list_transform({core}{filtered}{over}, lambda e: e.v)"
    if name == "grouping_id":
        return None if not texts else f"grouping({', '.join(texts)})"
    if len(texts) != known.arity and not (
        name in ("percentile_approx", "approx_percentile") and len(texts) == 3
    ):
        return None
    if ignore_nulls and name not in _FIRST_OR_LAST:
        return None
    core = known.core.format(*texts)
    if distinct and "DISTINCT" not in core:
        core = core.replace("(", "(DISTINCT ", 1)
    if order is not None:
        if not isinstance(order, exp.Order) or name not in ("string_agg", "listagg"):
            return None
        core = f"{core[:-1]} {ordering(order, writer)})"
    rows = [] if known.rows is None else [known.rows.format(*texts)]
    rows += [f"{texts[0]} IS NOT NULL"] if ignore_nulls and not over else []
    if ignore_nulls and over:
        core = f"{name.replace('_value', '')}_value({texts[0]} IGNORE NULLS)".replace(
            "any_value", "first_value"
        )
    elif name in _FIRST_OR_LAST and over:
        core = f"{_FIRST_OR_LAST[name]}_value({texts[0]})"
    rows += [writer.text(where)] if where is not None else []
    filtered = f" FILTER (WHERE {' AND '.join(f'({r})' for r in rows)})" if rows else ""
    tail = f"{filtered}{over}"
    others = [one.format(*texts) for one in known.beside]
    if distinct:
        others = [one.replace("(", "(DISTINCT ", 1) for one in others]
    return known.result.format(f"{core}{tail}", *(f"{one}{tail}" for one in others))


def _first_mode(value: str, sort: str, writer: Expressions, where: exp.Expr | None, over: str) -> str:
    """Of the most frequent values the first in an order."""
    kept = f"({value} IS NOT NULL)" + ("" if where is None else f" AND {writer.text(where)}")
    return f"list_aggregate({sort}(list({value}) FILTER (WHERE {kept}){over}), 'mode')"


def _counted(
    parts: list[exp.Expr], distinct: bool, writer: Expressions, where: exp.Expr | None, over: str
) -> str | None:
    """count(a, b) counts the rows in which all are known."""
    tail = ("" if where is None else f" FILTER (WHERE {writer.text(where)})") + over
    if not parts:
        return None
    if len(parts) == 1:
        if isinstance(parts[0], exp.Star):
            return None if distinct else f"count(*){tail}"
        if isinstance(parts[0], exp.Column) and isinstance(parts[0].this, exp.Star):
            return None  # of all columns, which only DuckDB knows
        return f"count({'DISTINCT ' if distinct else ''}{writer.text(parts[0])}){tail}"
    texts = [writer.text(p) for p in parts]
    known = " AND ".join(f"{t} IS NOT NULL" for t in texts)
    if distinct:
        return f"count(DISTINCT CASE WHEN {known} THEN row({', '.join(texts)}) END){tail}"
    return f"count(CASE WHEN {known} THEN 1 END){tail}"


def modified(
    node: exp.Expr,
    writer: Expressions,
    *,
    where: exp.Expr | None = None,
    order: exp.Expr | None = None,
    ignore_nulls: bool = False,
    over: str = "",
) -> str | None:
    """An aggregate under FILTER, WITHIN GROUP, IGNORE NULLS and OVER."""
    match node:
        case exp.Filter():
            inner = node.expression.this if isinstance(node.expression, exp.Where) else node.expression
            return modified(node.this, writer, where=inner, order=order, ignore_nulls=ignore_nulls, over=over)
        case exp.WithinGroup():
            said = node.expression
            return modified(node.this, writer, where=where, order=said, ignore_nulls=ignore_nulls, over=over)
        case exp.IgnoreNulls():
            return modified(node.this, writer, where=where, order=order, ignore_nulls=True, over=over)
        case exp.RespectNulls():
            return modified(node.this, writer, where=where, order=order, over=over)
        case exp.Any():
            name, given = "any", [node.this.unnest()]
        case exp.Anonymous():
            name = (node.this if isinstance(node.this, str) else node.this.name).lower()
            given = node.expressions
        case _:
            return None
    if name in WINDOWED and over:
        inside = ("" if name in _OF_ORDER else writer.texts(list(given))) + (
            " IGNORE NULLS" if ignore_nulls else ""
        )
        return f"{name}({inside}){over}"
    if name not in writer.aggregates:
        return None
    return written(name, given, writer, where=where, order=order, ignore_nulls=ignore_nulls, over=over)


def windowed(node: exp.Window, writer: Expressions) -> str:
    """A call with OVER, or an entry of the WINDOW clause."""
    alias = node.args.get("alias")
    parts = []
    if alias is not None and (
        node.args.get("over") is None or node.args.get("partition_by") or node.args.get("order")
    ):
        parts.append(quoted(alias.name))
    if node.args.get("partition_by"):
        parts.append(f"PARTITION BY {writer.texts(node.args['partition_by'])}")
    if node.args.get("order"):
        parts.append(ordering(node.args["order"], writer))
    if node.args.get("spec"):
        parts.append(_frame(node.args["spec"], writer))
    if isinstance(node.this, exp.Identifier):
        return f"{quoted(node.this.name)} AS ({' '.join(parts)})"
    over = f" OVER {quoted(alias.name)}" if alias is not None and not parts else f" OVER ({' '.join(parts)})"
    made = modified(node.this, writer, over=over)
    return made if made is not None else writer.refuse(node.this, "is not supported with OVER")


def ordering(order: exp.Expr, writer: Expressions) -> str:
    """ORDER BY, which says where NULLs are."""
    items = []
    for item in order.expressions:
        nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
        items.append(f"{writer.text(item.this)} {'DESC' if item.args.get('desc') else 'ASC'} NULLS {nulls}")
    return f"ORDER BY {', '.join(items)}"


def _frame(spec: exp.Expr, writer: Expressions) -> str:
    def bound(value: object, side: object) -> str:
        said = writer.text(value) if isinstance(value, exp.Expr) else str(value)
        return f"{said} {side}" if side else said

    start = bound(spec.args.get("start"), spec.args.get("start_side"))
    end = bound(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"))
    return f"{spec.args.get('kind') or 'RANGE'} BETWEEN {start} AND {end}"
