"""Infers the types of parameters from where they stand in a statement.

DuckDB binds parameters only when it has their values, and clients ask before.  A parameter has the type of
the column that it is compared with, inserted into or assigned to, or that it is cast to; else it is a text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millpond.sql.pg_catalog.known_arrays import with_known_arrays
from millpond.sql.pg_catalog.pg_types import unqualified

ColumnTypes = Callable[[str, str], str | None]  # (table or "", column) -> its logical type
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod,
             exp.NullSafeEQ, exp.NullSafeNEQ)  # fmt: skip
_SAME = {
    "INT": "INTEGER", "INT128": "HUGEINT", "DECIMAL": "DECIMAL(38,9)", "REAL": "FLOAT", "TEXT": "VARCHAR",
    "TIMETZ": "TIME WITH TIME ZONE", "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE", "OID": "BIGINT", "BIT": "BIT",
    "VARBIT": "BIT", "TIMESTAMP": "TIMESTAMP", "REGCLASS": "VARCHAR", "NAME": "VARCHAR",
}  # fmt: skip
_TEXTS = (exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpILike, exp.SimilarTo, exp.DPipe)


def parameter_types(text: str, column_type: ColumnTypes) -> dict[int, str]:
    """The types that could be inferred, by the number of the parameter.

    >>> types = {"id": "INTEGER", "day": "DATE"}
    >>> sql = "SELECT * FROM t WHERE id = $1 AND day BETWEEN $2 AND $3 LIMIT $4"
    >>> parameter_types(sql, lambda table, column: types.get(column))
    {1: 'INTEGER', 2: 'DATE', 3: 'DATE', 4: 'BIGINT'}
    """
    try:
        tree = sqlglot.parse_one(with_known_arrays(text), read="postgres")
    except (SqlglotError, RecursionError):
        return {}
    found: dict[int, str] = {}
    for node in tree.find_all(exp.Parameter):
        if not isinstance(node.this, exp.Literal) or not str(node.this.this).isdecimal():
            continue
        kind = _of(node, tree, column_type)
        if kind is not None:
            found.setdefault(int(str(node.this.this)), kind)
    return dict(sorted(found.items()))


def logical_type(kind: exp.DataType) -> str:
    """A type of PostgreSQL under the name that the columns of a pond have.

    >>> logical_type(exp.DataType.build("int4", "postgres"))
    'INTEGER'
    >>> logical_type(exp.DataType.build("timestamptz(3)[]", "postgres"))
    'TIMESTAMP WITH TIME ZONE[]'
    >>> logical_type(sqlglot.parse_one("$1::pg_catalog.int4", read="postgres").to)
    'INTEGER'
    """
    text = str(kind.sql("duckdb"))
    if (own := unqualified(text)) != text:
        text = str(exp.DataType.build(own, "postgres", udt=True).sql("duckdb"))
    base, dimensions = text.rstrip("[]"), "[]" if text.endswith("]") else ""  # int[][] is int[]
    plain = base.partition("(")[0].strip().upper()
    if plain == "DECIMAL" and base.upper() != plain:
        return f"{base}{dimensions}"
    return f"{_SAME.get(plain, plain)}{dimensions}"


def _of(node: exp.Expr, tree: exp.Expr, column_type: ColumnTypes) -> str | None:
    parent: exp.Expr | None = node.parent
    inner: exp.Expr = node
    while isinstance(parent, exp.Paren | exp.Neg):
        inner = parent
        parent = parent.parent
    if isinstance(parent, exp.Cast):
        return logical_type(parent.to)
    if isinstance(parent, exp.Limit | exp.Offset | exp.Fetch):
        return "BIGINT"
    if isinstance(parent, _TEXTS):
        return "VARCHAR"
    if isinstance(parent, exp.Any):
        other = _other(parent.parent, parent)
        kind = None if other is None else _type(other, column_type)
        return None if kind is None else f"{kind}[]"
    if isinstance(parent, _COMPARED):
        other = _other(parent, inner)
        kind = None if other is None else _type(other, column_type)
        added = isinstance(parent, exp.Add) and kind is not None and kind.startswith("TIMESTAMP")
        return "INTERVAL" if added else kind
    if isinstance(parent, exp.Between | exp.In):
        others = [e for e in (parent.this, *_choices(parent)) if e is not None and e is not inner]
        return next((k for e in others if (k := _type(e, column_type)) is not None), None)
    if (
        isinstance(parent, exp.Tuple)
        and isinstance(parent.parent, exp.Values)
        and isinstance(tree, exp.Insert)
    ):
        return _inserted(tree, parent.expressions.index(inner), column_type)
    if isinstance(parent, exp.Select) and isinstance(tree, exp.Insert) and parent is tree.expression:
        return _inserted(tree, parent.expressions.index(inner), column_type)
    if isinstance(parent, exp.Coalesce | exp.Greatest | exp.Least):
        others = [e for e in (parent.this, *parent.expressions) if e is not inner]
        return next((k for e in others if (k := _type(e, column_type)) is not None), None)
    if isinstance(parent, exp.And | exp.Or | exp.Not | exp.Where | exp.Having):
        return "BOOLEAN"
    if isinstance(parent, exp.Nullif):
        return _type(parent.expression if parent.this is inner else parent.this, column_type)
    if isinstance(parent, exp.If | exp.Case):
        return _of_case(parent, inner, column_type)
    if isinstance(parent, exp.Func):
        return _argument(parent, inner)
    return None


def _choices(parent: exp.Expr) -> list[Any]:
    """What BETWEEN and IN compare with."""
    if isinstance(parent, exp.Between):
        return [parent.args.get("low"), parent.args.get("high")]
    return list(parent.expressions)


_ARGUMENTS: dict[str, tuple[str, ...]] = {  # the types of arguments, by the name of the function
    "pg_sleep": ("DOUBLE",), "pg_cancel_backend": ("INTEGER",), "pg_terminate_backend": ("INTEGER", "BIGINT"),
    "generate_series": ("BIGINT", "BIGINT", "BIGINT"), "left": ("VARCHAR", "INTEGER"),
    "right": ("VARCHAR", "INTEGER"), "repeat": ("VARCHAR", "INTEGER"),
    "lpad": ("VARCHAR", "INTEGER", "VARCHAR"),
    "rpad": ("VARCHAR", "INTEGER", "VARCHAR"), "split_part": ("VARCHAR", "VARCHAR", "INTEGER"),
    "substring": ("VARCHAR", "INTEGER", "INTEGER"), "chr": ("INTEGER",), "sqrt": ("DOUBLE",),
    "power": ("DOUBLE", "DOUBLE"), "to_timestamp": ("DOUBLE",), "make_date": ("INTEGER",) * 3,
}  # fmt: skip


_CALLED = {"pow": "power", "unix_to_time": "to_timestamp", "exploding_generate_series": "generate_series"}


def _argument(call: exp.Func, inner: exp.Expr) -> str | None:
    """The type that a function gives to one of its arguments."""
    name = str(call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()
    if isinstance(call, exp.Pad):
        name = "lpad" if call.args.get("is_left") else "rpad"
    types = _ARGUMENTS.get(_CALLED.get(name, name), ())
    given = [call.expressions] if isinstance(call, exp.Anonymous) else call.args.values()
    arguments = [one for value in given for one in (value if isinstance(value, list) else [value])]
    place = next((n for n, one in enumerate(arguments) if one is inner), len(types))
    return types[place] if place < len(types) else None


def _of_case(parent: exp.If | exp.Case, inner: exp.Expr, column_type: ColumnTypes) -> str | None:
    """A result of CASE has the type of another one; a value that it compares, that of the operand."""
    case = parent if isinstance(parent, exp.Case) else parent.parent
    if not isinstance(case, exp.Case):
        return None
    branches = list(case.args.get("ifs") or ())
    if isinstance(parent, exp.If) and parent.this is inner:
        return "BOOLEAN" if case.this is None else _type(case.this, column_type)
    results = [*(branch.args.get("true") for branch in branches), case.args.get("default")]
    if case.this is inner:
        results = [branch.this for branch in branches]
    kinds = (_type(one, column_type) for one in results if one is not None and one is not inner)
    return next((kind for kind in kinds if kind is not None), None)


def _other(parent: exp.Expr | None, inner: exp.Expr) -> exp.Expr | None:
    if not isinstance(parent, exp.Binary):
        return None
    other: exp.Expr = parent.expression if parent.this is inner else parent.this
    return other


def _type(node: exp.Expr, column_type: ColumnTypes) -> str | None:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Column):
        return column_type(_table_of(node), node.name)
    if isinstance(node, exp.Cast):
        return logical_type(node.to)
    if isinstance(node, exp.Literal):
        return "VARCHAR" if node.is_string else "BIGINT" if str(node.this).isdecimal() else "DOUBLE"
    if isinstance(node, exp.Any):
        kind = _type(node.this, column_type)
        return kind.removesuffix("[]") if kind is not None and kind.endswith("[]") else None
    if isinstance(node, exp.Array) and node.expressions:
        kind = _type(node.expressions[0], column_type)
        return None if kind is None else f"{kind}[]"
    if isinstance(node, exp.Count):
        return "BIGINT"
    if isinstance(node, exp.Lower | exp.Upper | exp.DPipe | exp.Concat | exp.Substring | exp.Trim):
        return "VARCHAR"
    if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Mod):
        return _type(node.this, column_type) or _type(node.expression, column_type)
    if isinstance(node, exp.Max | exp.Min | exp.Sum):
        return _type(node.this, column_type)
    return None


def _table_of(node: exp.Column) -> str:
    """The relation that a column is of; "" if the statement does not say."""
    if not node.table:
        return ""
    scope = node.find_ancestor(exp.Select, exp.Update, exp.Delete)
    if scope is not None:
        for table in scope.find_all(exp.Table):
            if table.alias_or_name.lower() == node.table.lower():
                return table.name
    return node.table


def _inserted(tree: exp.Insert, place: int, column_type: ColumnTypes) -> str | None:
    into = tree.this
    if isinstance(into, exp.Schema):
        if place >= len(into.expressions):
            return None
        return column_type(into.this.name, into.expressions[place].name)
    return column_type(into.name, f"#{place}") if isinstance(into, exp.Table) else None
