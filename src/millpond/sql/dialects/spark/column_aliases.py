"""Columns of a SELECT that name an alias of the same SELECT: `SELECT a + 1 AS x, x * 2 AS y FROM t`.

DuckDB knows such names, too, but not their types when it chooses what an operator means.
So the query becomes

    SELECT c0 AS x, x * 2 AS y FROM (SELECT *, c0 AS x FROM (SELECT *, a + 1 AS c0 FROM t))

Law: a column of FROM comes before an alias of its name, because DuckDB takes the first of equal names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from millpond.sql.dialects.spark.names import column_name

if TYPE_CHECKING:
    from millpond.sql.dialects.spark.expressions import Expressions

_PREFIX = "__c"
# What DuckDB computes without looking for an operator of Spark.
_PLAIN = (
    *(exp.Column, exp.Identifier, exp.Alias, exp.Paren, exp.Literal, exp.Boolean, exp.Null),
    *(exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.Case, exp.If),
)
_INNER = ("joins", "laterals", "where", "group", "having", "windows")  # clauses that stay with FROM


def expand(select: exp.Select, writer: Expressions) -> None:
    """Move aliases that other columns of a query name into its FROM."""
    moved: set[str] = set()
    while _expanded(select, writer, moved):
        pass


def _expanded(select: exp.Select, writer: Expressions, moved: set[str]) -> bool:
    """Move the aliases that name no other ones; those in `moved` are in FROM already."""
    aliases: dict[str, int] = {}
    named: dict[int, set[str]] = {}  # the place of a column -> the aliases that it names
    for place, item in enumerate(select.expressions):
        found = {name for c in _columns(item) if (name := _bare(c)) in aliases}
        if found:
            named[place] = found
        alias = item.alias.lower() if isinstance(item, exp.Alias) else ""
        if alias and alias not in moved and not any(_bare(c) == alias for c in _columns(item)):
            aliases.setdefault(item.alias.lower(), place)
    if not any(_is_typed(select.expressions[place]) for place in named):
        return False
    group = select.args.get("group")
    if group is not None and any(_bare(c) in aliases for c in group.find_all(exp.Column)):
        return False  # they may be columns of FROM
    if select.args.get("qualify") or any(_is_star(item) for item in select.expressions):
        shown = exp.Var(this=next(iter(next(iter(named.values())))))
        writer.refuse(
            shown, "is an alias of this SELECT, beside * or QUALIFY", "define it in a subquery in FROM"
        )
    _rewrite(select, writer, aliases, named, f"{_PREFIX}{len(moved)}_")
    moved |= {name for name, place in aliases.items() if place not in named}
    return True


def _rewrite(
    select: exp.Select,
    writer: Expressions,
    aliases: dict[str, int],
    named: dict[int, set[str]],
    prefix: str,
) -> None:
    hidden: list[exp.Expr] = []

    def hide(node: exp.Expr) -> exp.Column:
        hidden.append(
            exp.Alias(this=node.copy(), alias=exp.to_identifier(f"{prefix}{len(hidden)}", quoted=True))
        )
        return exp.column(hidden[-1].alias, quoted=True)

    outer: list[exp.Expr] = []
    shown: list[exp.Expr] = []  # the aliases, in front of the hidden columns that have their values
    for place, item in enumerate(select.expressions):
        if place not in named:
            kept = hide(item.unalias())
            outer.append(exp.Alias(this=kept, alias=exp.to_identifier(column_name(item), quoted=True)))
            if aliases.get(item.alias.lower()) == place:
                shown.append(exp.Alias(this=kept.copy(), alias=exp.to_identifier(item.alias, quoted=True)))
            continue
        for unit in list(_units(item, writer, set(aliases))):
            unit.replace(hide(unit))
        name = exp.to_identifier(column_name(item), quoted=True)
        outer.append(item if isinstance(item, exp.Alias) else exp.Alias(this=item, alias=name))
    inside: list[exp.Expr] = hidden
    grouped = select.args.get("group") is not None or any(
        is_aggregate(n, writer) for h in hidden for n in h.walk(prune=lambda n: isinstance(n, exp.Query))
    )
    if not grouped and (select.args.get("from_") or select.args.get("from")):
        inside = [exp.Star(), *hidden]
    key = "from_" if "from_" in exp.Select.arg_types else "from"
    source = exp.Select(
        expressions=inside, **{k: select.args[k] for k in (key, *_INNER) if select.args.get(k)}
    )
    for clause in _INNER:
        select.set(clause, None)
    middle = exp.Select(expressions=[exp.Star(), *shown])
    middle.set(key, exp.From(this=_named(source, "__c")))
    select.set(key, exp.From(this=_named(middle, "__d")))
    select.set("expressions", outer)


def _named(select: exp.Select, name: str) -> exp.Subquery:
    return exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))


def _units(node: exp.Expr, writer: Expressions, aliases: set[str]) -> Iterator[exp.Expr]:
    """The largest parts of a column that only FROM and the groups know; they name no alias."""
    if isinstance(node, exp.Column):
        if _bare(node) not in aliases:
            yield node
        return
    free = not any(_bare(c) in aliases for c in _columns(node))
    if free and isinstance(node, exp.Query | exp.Window | exp.Filter | exp.WithinGroup | exp.IgnoreNulls):
        yield node
        return
    if is_aggregate(node, writer) and not isinstance(node.parent, exp.Window):
        if not free:
            writer.refuse(
                node, "has an alias of this SELECT inside", "define the alias in a subquery in FROM"
            )
        yield node
        return
    for part in list(node.iter_expressions()):
        if not isinstance(node, exp.Alias) or part is node.this:
            yield from _units(part, writer, aliases)


def is_aggregate(node: exp.Expr, writer: Expressions) -> bool:
    """Is this the call of an aggregate?  (Under OVER it is a window function.)"""
    if isinstance(node, exp.Any):
        return True
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return name in writer.aggregates and not isinstance(node.parent, exp.Window)


def _columns(node: exp.Expr) -> Iterator[exp.Column]:
    """The columns that an expression names, not those of its subqueries."""
    for inner in node.walk(prune=lambda n: isinstance(n, exp.Query)):
        if isinstance(inner, exp.Column):
            yield inner


def _bare(column: exp.Column) -> str:
    """The name of a column without a relation; "" for others."""
    return column.name.lower() if len(column.parts) == 1 and not isinstance(column.this, exp.Star) else ""


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _is_typed(node: exp.Expr) -> bool:
    return any(not isinstance(inner, _PLAIN) for inner in node.walk())
