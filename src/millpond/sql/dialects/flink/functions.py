"""The functions of Flink: what each is called here.

`SAME` are functions of Spark with the same meaning, `OWN` are macros of `__flink`; `HANDLERS` rewrite a call.
A name that is in none of them is refused if Flink has it, and else the user's function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from millpond.kernels.duck import quoted
from millpond.sql.binding.function_body import built_in
from millpond.sql.dialects.spark import functions as spark
from millpond.sql.dialects.spark.aggregates import AGGREGATES as SPARK
from millpond.sql.dialects.spark.aggregates import SparkAggregate, written

if TYPE_CHECKING:
    from millpond.sql.dialects.flink.expressions import FlinkExpressions

Given = list[exp.Expr]
Handler = Callable[[Given, "FlinkExpressions"], "str | None"]

# Aggregates of Spark with the same meaning, and those that differ.
AGGREGATES: dict[str, SparkAggregate] = {
    **{
        name: SPARK[name]
        for name in (
            *(
                "count",
                "min",
                "max",
                "stddev",
                "stddev_pop",
                "stddev_samp",
                "var_pop",
                "var_samp",
                "variance",
            ),
            *("first_value", "last_value", "grouping"),
        )
    },
    "sum": SparkAggregate("sum({0})"),
    "avg": SparkAggregate("sum({0})", beside=("count({0})",), result="__flink.average_of({}, {})"),
    "listagg": SparkAggregate("string_agg({0}, {1})", 2),
    "array_agg": SparkAggregate("list({0})"),
}
_ONLY_WINDOWED = ("first_value", "last_value")  # as aggregates Flink takes the first row that came
SAME = {
    **{
        name: name
        for name in (
            *(
                "abs",
                "sqrt",
                "power",
                "exp",
                "sin",
                "cos",
                "tan",
                "asin",
                "acos",
                "atan",
                "atan2",
                "sinh",
                "cosh",
            ),
            *("tanh", "degrees", "radians", "pi", "round", "sign"),
            *(
                "upper",
                "lower",
                "char_length",
                "character_length",
                "ltrim",
                "rtrim",
                "reverse",
                "repeat",
                "ascii",
            ),
            *(
                "concat",
                "concat_ws",
                "md5",
                "sha1",
                "left",
                "right",
                "locate",
                "instr",
                "position",
                "overlay",
            ),
            *("date_format", "from_unixtime", "year", "quarter", "month", "week", "dayofyear", "dayofmonth"),
            *("dayofweek", "hour", "minute", "second", "timestampadd", "timestampdiff"),
            *("current_date", "current_timestamp", "now", "localtimestamp", "coalesce", "nullif", "if"),
            *("array_contains", "array_distinct", "array_reverse", "map_keys", "map_values", "map_entries"),
            *("bin", "hex", "replace", "translate", "startswith", "endswith"),
        )
    },
    "ifnull": "ifnull",
    "ucase": "upper",
    "lcase": "lower",
    "to_base64": "base64",
    "current_row_timestamp": "now",
}
OWN = {
    **{name: name for name in ("split_index", "regexp", "regexp_extract", "regexp_replace", "json_value")},
    **{name: name for name in ("to_timestamp", "to_date", "to_timestamp_ltz", "floor_to", "floor", "ceil")},
    "ceiling": "ceil",
    "cardinality": "cardinality",
}
# Functions that Flink has and that are refused by name, so that none is taken for a user's.
MISSING = {
    "collect": "there is no type MULTISET here: use ARRAY_AGG",
    "json_query": "use JSON_VALUE, or json_extract in the dialect 'duckdb'",
    "rand": "a view cannot depend on chance",
    "rand_integer": "a view cannot depend on chance",
    "uuid": "a view cannot depend on chance",
    "row": "name the fields in the default dialect: struct_pack(a := 1)",
    "ceil_to": "use FLOOR(… TO unit)",
    "match_proctime": "MATCH_RECOGNIZE is not supported",
    "match_rowtime": "MATCH_RECOGNIZE is not supported",
    "lpad": "use it in the default dialect",
    "rpad": "use it in the default dialect",
    "initcap": "use it in the default dialect",
    "ln": "use it in the default dialect",
    "log": "use it in the default dialect",
    "log2": "use it in the default dialect",
    "log10": "use it in the default dialect",
    "unix_timestamp": "use TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', …)",
    "element": "write array[1]",
    "current_watermark": "SHOW WATERMARKS",
    "source_watermark": "write column - INTERVAL '5' SECOND",
    "sha224": "use SHA256",
}
_HINT = "write this query in the default dialect"
OURS = frozenset({"tumble", "hop", "cumulate", "calendar", "session", "proctime"})


def call(name: str, given: Given, node: exp.Expr, writer: FlinkExpressions) -> str:
    """The text of a call."""
    if name in AGGREGATES:
        if name in _ONLY_WINDOWED:
            writer.refuse(node, "depends on the order in which rows came", "use MIN or MAX, or ROW_NUMBER")
        made = written(name, _with_separator(name, given), writer)
        return (
            made if made is not None else writer.refuse(node, "is not supported with these arguments", _HINT)
        )
    if name in HANDLERS:
        made = HANDLERS[name](given, writer)
        return (
            made if made is not None else writer.refuse(node, "is not supported with these arguments", _HINT)
        )
    if name in OWN:
        return f"__flink.{OWN[name]}({', '.join(writer.operand(g) for g in given)})"
    if name in SAME:
        return spark.call(SAME[name], given, node, writer)
    if name in OURS:
        return f"{name}({writer.texts(given)})"
    if name in MISSING:
        writer.refuse(node, hint=MISSING[name])
    if name in built_in() or name in spark.registry():
        writer.refuse(node, "may be another function than the one here", _HINT)
    return f"{quoted(name)}({writer.texts(given)})"


def _with_separator(name: str, given: Given) -> Given:
    """LISTAGG separates with a comma."""
    if name == "listagg" and len(given) == 1 and not isinstance(given[0], exp.Distinct):
        return [*given, exp.Literal.string(",")]
    return given


def _substring(given: Given, writer: FlinkExpressions) -> str | None:
    if len(given) not in (2, 3):
        return None
    return f"__flink.substring({', '.join(writer.operand(g) for g in given)})"


def _mod(given: Given, writer: FlinkExpressions) -> str | None:
    if len(given) != 2:
        return None
    return writer.text(exp.Mod(this=given[0].copy(), expression=given[1].copy()))


def _extreme(name: str) -> Handler:
    """GREATEST and LEAST are NULL where one argument is."""

    def code(given: Given, writer: FlinkExpressions) -> str | None:
        texts = [writer.operand(g) for g in given]
        known = " AND ".join(f"{t} IS NOT NULL" for t in texts)
        return f"CASE WHEN {known} THEN {name}({', '.join(texts)}) END" if texts else None

    return code


def _sha256(given: Given, writer: FlinkExpressions) -> str | None:
    return (
        spark.call("sha2", [given[0], exp.Literal.number(256)], given[0], writer) if len(given) == 1 else None
    )


HANDLERS: dict[str, Handler] = {
    "substring": _substring,
    "substr": _substring,
    "mod": _mod,
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    "sha256": _sha256,
}
