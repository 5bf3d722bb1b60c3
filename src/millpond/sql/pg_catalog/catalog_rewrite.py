"""Turns a PostgreSQL query about the catalog into one that DuckDB can answer over our relations.

Five things differ: the schema `pg_catalog` is DuckDB's own, casts to `regclass` and its like, `OPERATOR(…)`,
`COLLATE`, and functions whose value depends on the connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millpond.errors import InvalidError
from millpond.sql.pg_catalog.catalog_database import SCHEMAS, relations
from millpond.sql.pg_catalog.catalog_functions import FUNCTIONS, OF_CONNECTION
from millpond.sql.pg_catalog.known_arrays import with_known_arrays
from millpond.sql.pg_catalog.pg_types import unqualified

_REG = {"regclass", "regtype", "regnamespace", "regrole"}
_AS_TEXT = {"name", '"char"', "char", "regproc", "regprocedure", "regoper", "regoperator", "unknown",
            "cstring", "pg_node_tree", "xid", "aclitem", "regconfig", "regdictionary"}  # fmt: skip
_TO_OID = {f"to_{kind}_oid": f"{kind}_name" for kind in _REG}
_AS_NUMBER = {"oid"}
_RENAMED = {"json_build_object": "json_object", "jsonb_build_object": "json_object",
            "json_build_array": "json_array", "json_agg": "json_group_array"}  # fmt: skip
_HIDDEN = {"xmin", "xmax", "cmin", "cmax", "ctid", "tableoid"}
_COMPARISONS = {
    "=": exp.EQ, "<>": exp.NEQ, "<": exp.LT, ">": exp.GT, "<=": exp.LTE, ">=": exp.GTE, "~": exp.RegexpLike,
    "~~": exp.Like, "||": exp.DPipe, "+": exp.Add, "-": exp.Sub, "*": exp.Mul, "~*": exp.RegexpILike,
}  # fmt: skip

Ask = Callable[[str, list[Any]], Any]  # a function of the connection and its arguments -> its value


@dataclass(frozen=True)
class CatalogQuery:
    """A parsed query; it is copied before it is changed."""

    tree: exp.Expr
    kinds: dict[str, str]  # PostgreSQL's types of columns and aliases that DuckDB would show otherwise
    tables: tuple[str, ...] = ()  # of the pond, which it reads, too
    relations: frozenset[str] = frozenset()  # of pg_catalog, without a schema


@lru_cache(maxsize=512)
def parse_query(text: str) -> CatalogQuery | None:
    """A query over the catalog, perhaps with tables of the pond; None if it is about something else."""
    trees = _parsed(text) or _parsed(_KEYWORD_ALIAS.sub(r'as "\1"', text))
    if trees is None:
        return None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        return None
    tree = trees[0]
    own = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    known: set[str] = set()
    tables: dict[str, None] = {}
    asked = False
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue  # a function
        schema, name = table.db.lower(), table.name.lower()
        if not schema and name in own:
            continue
        if schema in SCHEMAS or (not schema and name in relations()["pg_catalog"]):
            asked = True
            known.add(name)
        elif schema in ("", "public"):
            tables[table.name] = None
        else:
            return None
    if tables and not asked:
        return None
    named = (_type(cast) in _REG for cast in tree.find_all(exp.Cast))
    if not asked and not any(name in FUNCTIONS for name in _called(tree)) and not any(named):
        return None
    return CatalogQuery(tree, _kinds(tree), tuple(tables), frozenset(known))


# `AS select`: PostgreSQL takes any word behind AS as a name
_KEYWORD_ALIAS = re.compile(
    r"\bas\s+(select|insert|update|delete|table|from|where|order|group)\b(?!\s*\()", re.IGNORECASE
)


def _parsed(text: str) -> list[exp.Expr] | None:
    try:
        return [t for t in sqlglot.parse(with_known_arrays(text), read="postgres") if t is not None]
    except (SqlglotError, RecursionError):
        return None


def _called(tree: exp.Expr) -> Iterator[str]:
    for node in tree.walk():
        if isinstance(node, exp.Func):
            yield _name(node)
        elif isinstance(node, exp.Column) and not node.table and node.name.lower() in OF_CONNECTION:
            yield node.name.lower()


def _name(node: exp.Func) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    name = str(node.sql_name()).lower()
    return "version" if name == "current_version" else name


def _kinds(tree: exp.Expr) -> dict[str, str]:
    """The types `oid`, `name` and `"char"` of columns, also under the aliases that the query gives them."""
    found: dict[str, str] = {}
    found |= _column_types()
    for alias in tree.find_all(exp.Alias):
        inner = alias.this
        if isinstance(inner, exp.Column):
            kind = found.get(inner.name.lower())
            if kind is not None:
                found.setdefault(alias.alias.lower(), kind)
            else:
                found.pop(alias.alias.lower(), None)
    return found


@lru_cache(maxsize=1)
def _column_types() -> dict[str, str]:
    shown = {
        "oid": "PG_OID",
        "name": "PG_NAME",
        '"char"': "PG_CHAR",
        "int2vector": "PG_VECTOR",
        "oidvector": "PG_VECTOR",
    }
    found: dict[str, str] = {}
    for columns in relations()["pg_catalog"].values():
        for name, kind in columns:
            if kind in shown:
                found[name] = shown[kind]
    return found


def rewritten(query: CatalogQuery, ask: Ask, params: Mapping[str, Any] | None = None) -> str:
    """The query in DuckDB's SQL; `ask` knows the connection, `params` the values of `$p1` and so on."""
    tree = query.tree.copy()
    _name_columns(tree)
    if params:
        _bind_arguments(tree, params)
    tree = _changed(tree, ask)
    try:
        return str(tree.sql("duckdb"))
    except (SqlglotError, RecursionError) as error:
        raise InvalidError("this query over the catalog is not supported", detail=str(error)) from error


def used_params(sql: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Those values that a rewritten query still has."""
    return {name: value for name, value in params.items() if re.search(rf"\${name}\b", sql)}


def _bind_arguments(tree: exp.Expr, params: Mapping[str, Any]) -> None:
    """Put the values of parameters where functions of the connection take them."""
    for call in tree.find_all(exp.Func):
        if _name(call) in OF_CONNECTION:
            for one in list(call.find_all(exp.Parameter, exp.Placeholder)):
                if one.name in params:
                    one.replace(exp.convert(params[one.name]))


def _name_columns(tree: exp.Expr) -> None:
    """Columns without a name get the one that PostgreSQL gives them."""
    select = tree
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    if not isinstance(select, exp.Select):
        return
    for n, column in enumerate(list(select.expressions)):
        inner = column.expression if isinstance(column, exp.Dot) else column
        name = None
        if isinstance(inner, exp.Func):
            name = _name(inner)
        elif isinstance(inner, exp.Column) and not inner.table and inner.name.lower() in OF_CONNECTION:
            name = inner.name.lower()
        elif isinstance(inner, exp.Cast):
            name = inner.this.name if isinstance(inner.this, exp.Column) else _type(inner).strip('"')
        elif isinstance(inner, exp.Case):
            name = "case"
        elif isinstance(inner, exp.Literal | exp.Boolean | exp.Null | exp.Binary | exp.Paren):
            name = "?column?"
        if name:
            select.expressions[n].replace(exp.alias_(column.copy(), name, quoted=True))


def _changed(tree: exp.Expr, ask: Ask) -> Any:
    """Change all nodes, each after those inside it."""
    holder = exp.Paren(this=tree)
    for node in reversed(list(tree.walk(bfs=True))):
        made = _node(node, ask)
        if made is not node:
            node.replace(made)
    return holder.this


def _node(node: exp.Expr, ask: Ask) -> Any:
    if isinstance(node, exp.Collate):
        return node.this
    if isinstance(node, exp.Dot) and isinstance(node.this, exp.Identifier):
        qualified = node.this.name.lower() in SCHEMAS and not isinstance(node.expression, exp.Identifier)
        return node.expression if qualified else node
    if isinstance(node, exp.Operator):
        return _operator(node)
    if isinstance(node, exp.Table):
        return _table(node)
    if isinstance(node, exp.Cast):
        return _cast(node)
    if isinstance(node, exp.Column):
        return _column(node, ask)
    if isinstance(node, exp.Func):
        return _function(node, ask)
    return node


def _operator(node: exp.Operator) -> Any:
    sign = str(node.args["operator"]).rpartition(".")[2] or str(node.args["operator"])
    left, right = node.this, node.expression
    if isinstance(right, exp.Collate):
        right = right.this
    if sign.startswith("!"):
        return exp.not_(exp.Paren(this=_COMPARISONS[sign[1:]](this=left, expression=right)))
    return _COMPARISONS.get(sign, exp.EQ)(this=left, expression=right)


def _table(node: exp.Table) -> Any:
    if not isinstance(node.this, exp.Identifier):  # a function
        made = node.copy()
        made.set("db", None)
        return made if node.db.lower() in SCHEMAS else node
    schema, name = node.db.lower(), node.name.lower()
    if schema == "public":
        made = node.copy()
        made.set("db", None)
        return made
    if schema not in SCHEMAS and (schema or name not in relations()["pg_catalog"]):
        return node
    select = node.find_ancestor(exp.Query)
    while select is not None:
        if not schema and any(cte.alias_or_name.lower() == name for cte in select.ctes):
            return node
        select = select.find_ancestor(exp.Query)
    made = node.copy()
    made.set("db", exp.to_identifier(SCHEMAS[schema or "pg_catalog"]))
    made.set("catalog", None)
    made.set("this", exp.to_identifier(name, quoted=True))
    made.set("only", None)
    return made if made.alias else exp.alias_(made, name, table=True)


def _type(node: exp.Cast) -> str:
    return unqualified(str(node.to.sql("postgres"))).lower()


def _cast(node: exp.Cast) -> Any:
    kind = _type(node)
    if kind in ("text", "varchar") and isinstance(node.this, exp.Anonymous) and node.this.name in _TO_OID:
        return exp.Anonymous(this=_TO_OID[node.this.name], expressions=[node.this.copy()])
    if kind in _REG:
        inner = node.this
        if isinstance(inner, exp.Cast) and _type(inner) in ("text", "varchar", "cstring", "oid"):
            inner = inner.this
        if isinstance(inner, exp.Literal | exp.Placeholder | exp.Parameter):
            return exp.Anonymous(this=f"to_{kind}_oid", expressions=[exp.cast(inner.copy(), "varchar")])
        if isinstance(node.parent, exp.EQ | exp.NEQ | exp.In | exp.Any):
            return inner
        if isinstance(node.parent, exp.Cast) and _type(node.parent) == "oid":
            return inner
        return exp.Anonymous(this=f"{kind}_name", expressions=[inner.copy()])
    if kind in _AS_TEXT:
        return exp.cast(node.this.copy(), "varchar")
    if kind in _AS_NUMBER:
        return exp.cast(node.this.copy(), "bigint")
    if kind in ("int2vector", "oidvector", "smallint[]", "oid[]", "int2[]"):
        return node.this
    if kind in ("information_schema.sql_identifier", "sql_identifier", "character_data", "yes_or_no"):
        return exp.cast(node.this.copy(), "varchar")
    if kind == "cardinal_number":
        return exp.cast(node.this.copy(), "integer")
    if kind != str(node.to.sql("postgres")).lower():  # pg_catalog.text and its like
        return exp.cast(node.this.copy(), kind, dialect="postgres")
    return node


def _column(node: exp.Column, ask: Ask) -> exp.Expr:
    name = node.name.lower()
    if not node.table and name in OF_CONNECTION and not node.this.quoted:
        return exp.convert(ask(name, []))
    if name in _HIDDEN:
        hidden: exp.Expr = exp.cast(exp.Literal.number(0), "bigint")
        return exp.alias_(hidden, name) if isinstance(node.parent, exp.Select) else hidden
    if node.db.lower() in SCHEMAS:
        made = node.copy()
        made.set("db", None)
        return made
    return node


def _function(node: exp.Func, ask: Ask) -> exp.Expr:
    name = _name(node)
    if name in ("to_regclass", "to_regtype"):
        return exp.Anonymous(this=f"{name}_oid", expressions=list(node.expressions))
    if name in _RENAMED:
        return exp.Anonymous(this=_RENAMED[name], expressions=list(node.expressions))
    if name not in OF_CONNECTION:
        return node
    given = node.expressions or ([node.this] if isinstance(node.this, exp.Expr) else [])
    values: list[Any] = []
    for one in given:
        while isinstance(one, exp.Cast | exp.Paren):
            one = one.this
        if isinstance(one, exp.Boolean | exp.Literal):
            values.append(one.to_py())
        elif isinstance(one, exp.Null):
            values.append(None)
        elif name == "current_setting":
            return exp.Anonymous(this="setting_of", expressions=[given[0].copy()])
        else:
            return node
    return exp.convert(ask(name, values))
