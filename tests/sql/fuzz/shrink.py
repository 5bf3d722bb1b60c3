"""A failing case made small: views, statements, rows, clauses and shakes go while it still fails.

The clauses of a query are taken away in sqlglot's tree of it; a text that is no query any more simply does not
fail, and is not kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import sqlglot
from sqlglot import exp

from tests.sql.fuzz.cases import Case, Shake, Table, reads

Fails = Callable[[Case], bool]
BUDGET_S = 90.0


def shrunk(case: Case, fails: Fails, budget_s: float = BUDGET_S) -> Case:
    """The smallest case found in the time given."""
    end = time.monotonic() + budget_s
    again = True
    while again and time.monotonic() < end:
        again = False
        for smaller in _smaller(case):
            if time.monotonic() > end:
                break
            if fails(smaller):
                case, again = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Cases with one thing less, the larger things first."""
    if case.shakes:
        yield replace(case, shakes=())
        for n, shake in enumerate(case.shakes):
            if shake != Shake():
                yield replace(case, shakes=_put(case.shakes, n, Shake()))
    for n in range(len(case.edits)):
        yield replace(case, edits=_cut(case.edits, n))
    for n in range(len(case.views) - 1):
        yield replace(case, views=_cut(case.views, n))
    for n in reversed(range(len(case.epochs))):
        if len(case.epochs) > 1:
            views = tuple(
                replace(v, epoch=v.epoch - (v.epoch > n or v.epoch == len(case.epochs) - 1 > 0))
                for v in case.views
            )
            yield replace(case, epochs=_cut(case.epochs, n), views=views, shakes=_cut(case.shakes, n))
    for n, changes in enumerate(case.epochs):
        for m in range(len(changes)):
            yield replace(case, epochs=_put(case.epochs, n, _cut(changes, m)))
    for n, view in enumerate(case.views):
        for query in _queries(view.query):
            yield replace(case, views=_put(case.views, n, replace(view, query=query)))
        if view.epoch:
            yield replace(case, views=_put(case.views, n, replace(view, epoch=0)))
    for n, changes in enumerate(case.epochs):
        for m, change in enumerate(changes):
            for k in range(len(change.rows) if len(change.rows) > 1 else 0):
                less = replace(change, rows=_cut(change.rows, k))
                yield replace(case, epochs=_put(case.epochs, n, _put(changes, m, less)))
    for n, table in enumerate(case.tables):
        if not any(reads(v.query, table.name) for v in case.views) and len(case.tables) > 1:
            yield _without_table(case, n)
        for column in [c for c in table.columns if c != "id"]:
            yield _without_column(case, table, column)


def _cut(items: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    return (*items[:n], *items[n + 1 :])


def _put(items: tuple[Any, ...], n: int, item: Any) -> tuple[Any, ...]:
    return (*items[:n], item, *items[n + 1 :])


def _without_table(case: Case, n: int) -> Case:
    name = case.tables[n].name
    epochs = tuple(tuple(c for c in changes if c.table.name != name) for changes in case.epochs)
    return replace(case, tables=_cut(case.tables, n), epochs=epochs)


def _without_column(case: Case, table: Table, column: str) -> Case:
    place = list(table.columns).index(column)
    fewer = replace(table, columns={c: k for c, k in table.columns.items() if c != column})
    epochs = tuple(
        tuple(
            replace(c, table=fewer, rows=tuple(_cut(r, place) for r in c.rows))
            if c.table.name == table.name
            else c
            for c in changes
        )
        for changes in case.epochs
    )
    tables = tuple(fewer if t.name == table.name else t for t in case.tables)
    return replace(case, tables=tables, epochs=epochs)


def _queries(text: str) -> Iterator[str]:
    """Queries with a part less."""
    try:
        tree = sqlglot.parse_one(text, read="duckdb")
    except sqlglot.errors.SqlglotError:
        return
    seen = {text}
    for edited in _edited(tree):
        made = edited.sql(dialect="duckdb")
        if made not in seen and len(made) <= len(text) + 20:
            seen.add(made)
            yield made


def _edited(tree: exp.Expr) -> Iterator[exp.Expr]:
    for number, node in enumerate(list(tree.walk())):
        for edit in _edits(node):
            copy = tree.copy()
            target = list(copy.walk())[number]
            found = edit(target)
            if found is not None:
                yield found if target is copy else copy


def _edits(node: exp.Expr) -> Iterator[Callable[[exp.Expr], exp.Expr | None]]:
    """Each changes a copy of the node in place, and returns what stands for it."""

    def keep(
        child: Callable[[exp.Expr], exp.Expr | None],
    ) -> Callable[[exp.Expr], exp.Expr | None]:
        def edit(target: exp.Expr) -> exp.Expr | None:
            found = child(target)
            return target.replace(found.copy()) if found is not None else None

        return edit

    def drop(arg: str, n: int | None = None) -> Callable[[exp.Expr], exp.Expr | None]:
        def edit(target: exp.Expr) -> exp.Expr | None:
            if n is None:
                target.set(arg, None)
            else:
                target.set(arg, [x for m, x in enumerate(target.args[arg]) if m != n])
            return target

        return edit

    if (
        isinstance(node, exp.Subquery)
        and isinstance(node.this, exp.Select)
        and len(node.this.expressions) == 1
    ):
        inner = node.this.args.get("from_") or node.this.args.get("from")
        if inner is not None and isinstance(inner.this, exp.Subquery):
            yield keep(lambda t: (t.this.args.get("from_") or t.this.args["from"]).this)
    for arg in (
        "where",
        "having",
        "qualify",
        "order",
        "limit",
        "offset",
        "distinct",
        "with_",
        "with",
        "filter",
    ):
        if node.args.get(arg) is not None:
            yield drop(arg)
    for arg in ("joins", "expressions", "laterals"):
        items = node.args.get(arg)
        if isinstance(items, list) and (len(items) > 1 or arg == "joins"):
            for n in range(len(items)):
                yield drop(arg, n)
    if isinstance(node, exp.SetOperation):
        yield keep(lambda t: t.this)
        yield keep(lambda t: t.expression)
    if isinstance(node, exp.Binary | exp.Connector):
        yield keep(lambda t: t.this)
        yield keep(lambda t: t.expression)
    if isinstance(node, exp.Not | exp.Paren):
        yield keep(lambda t: t.this)
    if isinstance(node, exp.Case | exp.Coalesce | exp.Func) and not isinstance(
        node, exp.AggFunc | exp.Connector | exp.Binary
    ):
        yield keep(lambda t: t.args.get("default") or (t.this if isinstance(t.this, exp.Expr) else None))
    if isinstance(node, exp.Filter | exp.Window):
        yield keep(lambda t: t.this)
    if isinstance(node, exp.Exists | exp.In | exp.Connector | exp.Predicate):
        yield keep(lambda _: exp.true())


def report(case: Case, told: str, names: list[str]) -> str:
    """A script that runs, and what went wrong with it."""
    asked = "\n".join(f"SELECT * FROM {name};" for name in names)
    return f"-- seed {case.seed}\n-- {told}\n{case.sql()}\n{asked}\n"
