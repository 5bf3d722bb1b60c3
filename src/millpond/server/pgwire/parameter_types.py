"""Infers the types of parameters from where they stand in a statement.

DuckDB binds parameters only when it has their values, and clients ask before.  A parameter has the type of
the column that it is compared with, inserted into or assigned to, or that it is cast to; else it is a text.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millpond.sql.pg_catalog.known_arrays import with_known_arrays

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
    """
    text = str(kind.sql("duckdb"))
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
        return None if other is None else _type(other, column_type)
    if isinstance(parent, exp.Between | exp.In):
        return _type(parent.this, column_type) if parent.this is not inner else None
    if (
        isinstance(parent, exp.Tuple)
        and isinstance(parent.parent, exp.Values)
        and isinstance(tree, exp.Insert)
    ):
        return _inserted(tree, parent.expressions.index(inner), column_type)
    if isinstance(parent, exp.Select) and isinstance(tree, exp.Insert) and parent is tree.expression:
        return _inserted(tree, parent.expressions.index(inner), column_type)
    if isinstance(parent, exp.Coalesce):
        others = [e for e in (parent.this, *parent.expressions) if e is not inner]
        return next((k for e in others if (k := _type(e, column_type)) is not None), None)
    return None


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
