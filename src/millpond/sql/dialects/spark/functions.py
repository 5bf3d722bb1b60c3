"""The functions of Spark: each is a macro of `__spark`, the same function of DuckDB, a rewriting, or refused.

A name that Spark does not have is the user's function, or DuckDB's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from sqlglot import exp

from millpond.kernels.duck import quoted
from millpond.sql.dialects.library import has
from millpond.sql.dialects.spark import aggregates, calls, document_calls
from millpond.sql.text.parse import closest_name

if TYPE_CHECKING:
    from millpond.sql.dialects.spark.expressions import Expressions

assert document_calls.__name__  # it registers its functions in `calls`
CATALOG = "__spark"
# Functions of DuckDB with the same name and meaning, or the same meaning under another name.
SAME = {
    **dict.fromkeys(("lower", "lcase"), "lower"),
    **dict.fromkeys(("upper", "ucase"), "upper"),
    **{
        n: n
        for n in (
            "abs",
            "cbrt",
            "degrees",
            "radians",
            "pi",
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
            "exp",
            "coalesce",
            "nullif",
        )
    },
    "nvl": "coalesce",
    "ifnull": "coalesce",
    "sign": "__spark.signum",
    "ln": "__spark.ln",
}
OURS = frozenset({"tumble", "hop", "cumulate", "calendar", "session", "proctime", "now"})  # in any dialect


@cache
def registry() -> frozenset[str]:
    """The names of all functions that Spark 4.3 has."""
    file = resources.files("millpond.sql.dialects.spark").joinpath("registry.txt")
    return frozenset(file.read_text("utf-8").split())


def name_of(node: exp.Anonymous) -> str:
    return (node.this if isinstance(node.this, str) else node.this.name).lower()


def spoken(node: exp.Expr) -> str:
    """What a message calls a node: the function's name, or the words of the syntax."""
    match node:
        case exp.Anonymous():
            return name_of(node)
        case exp.Window() | exp.Filter() | exp.IgnoreNulls() | exp.WithinGroup():
            return spoken(node.this)
        case exp.Var() | exp.Identifier():
            return node.name
        case exp.Column():
            return node.name
        case exp.TryCast():
            return "TRY_CAST"
        case exp.Func():
            return node.sql_names()[0]
    return type(node).__name__.upper()


def supported(name: str) -> bool:
    """Is there a meaning for this function of Spark?"""
    return (
        name in SAME
        or name in calls.HANDLERS
        or name in aggregates.AGGREGATES
        or name in aggregates.WINDOWED
        or name in calls.SYNTAX
        or has(CATALOG, name)
    )


def call(name: str, given: Sequence[exp.Expr], node: exp.Expr, writer: Expressions) -> str:
    """The text of a call."""
    if name in aggregates.AGGREGATES:
        made = aggregates.written(name, given, writer)
        return made if made is not None else writer.refuse(node, "is not supported with these arguments")
    if name in calls.HANDLERS:
        made = calls.HANDLERS[name](list(given), writer)
        return made if made is not None else writer.refuse(node, "is not supported with these arguments")
    if name in SAME:
        return f"{SAME[name]}({writer.texts(list(given))})"
    if has(CATALOG, name):
        return f"{CATALOG}.{quoted(name)}({', '.join(writer.operand(g) for g in given)})"
    if name in OURS or name not in registry():
        return f"{quoted(name) if name not in OURS else name}({writer.texts(list(given))})"
    near = calls.instead_of(name) or closest_name(name, [n for n in registry() if supported(n)])
    writer.refuse(node, hint=near or "write this query in the dialect 'duckdb', whose functions Millpond has")


def aggregate(
    node: exp.Expr,
    writer: Expressions,
    *,
    where: exp.Expr | None = None,
    order: exp.Expr | None = None,
    ignore_nulls: bool = False,
) -> str | None:
    """An aggregate with FILTER, WITHIN GROUP or IGNORE NULLS; None if it is no aggregate."""
    return aggregates.modified(node, writer, where=where, order=order, ignore_nulls=ignore_nulls)


def windowed(node: exp.Window, writer: Expressions) -> str:
    return aggregates.windowed(node, writer)
