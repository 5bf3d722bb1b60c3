"""CREATE VIEW, a text under a name, and CREATE MATERIALIZED VIEW, its rows kept up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from millpond.delta import WEIGHT
from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.operators.iterate_epoch import Limits
from millpond.plan.nodes import Node, View
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.plan.own_table import own_view, without_step
from millpond.sql.catalog import Catalog
from millpond.sql.functions import inlined
from millpond.sql.options import no_options
from millpond.sql.output_columns import check_unique
from millpond.sql.parse import Words, readable
from millpond.sql.query import lower_query
from millpond.sql.result import Result
from millpond.sql.session import Session
from millpond.sql.statements.objects import create
from millpond.sql.time_windows import as_plain_sql
from millpond.sql.types import quoted


def run(replaces: bool) -> Callable[[Session, Words], Result]:
    def called(session: Session, words: Words) -> Result:
        exists = words.if_not_exists()
        name = words.name("name of the view")
        text, _ = view_text(words, closes=False)

        def make(builder: Builder) -> SqlObject:
            catalog = session.catalog
            made = inlined(text, catalog.objects)
            sql = as_plain_sql(made.sql)
            catalog.binder.plan(sql)
            check_unique(catalog, sql)
            columns = tuple(SqlColumn(n, t) for n, t in catalog.binder.describe(sql))
            uses = (*(o.name for o in catalog.read_by(sql)), *made.uses)
            return SqlObject(
                "view", name, columns, text=sql, uses=uses, options=made.options, said=words.piece.sql
            )

        return create(session, name, "view", exists=exists, replaces=replaces, make=make)

    return called


def run_materialized(replaces: bool) -> Callable[[Session, Words], Result]:
    def called(session: Session, words: Words) -> Result:
        exists = words.if_not_exists()
        name = words.name("name of the view")
        text, on_close = view_text(words, closes=True)

        def make(builder: Builder) -> SqlObject:
            catalog = session.catalog
            made = materialize(session, builder, name, text, on_close, words.piece.sql, catalog)
            check_unique(catalog, as_plain_sql(made.text))
            return made

        return create(session, name, "materialized view", exists=exists, replaces=replaces, make=make)

    return called


def materialize(
    session: Session,
    builder: Builder,
    name: str,
    text: str,
    on_close: bool,
    said: str,
    catalog: Catalog | None = None,
) -> SqlObject:
    """The steps of a query over the names of a catalog, and a view of them."""
    catalog = catalog or session.catalog
    made = inlined(text, catalog.objects)
    text = made.sql
    set_to = session.pond.settings
    limits = Limits(set_to.rounds_max, set_to.recursion_rows_max, set_to.recursion_copies_max)
    before = builder.plan.nodes
    relation = lower_query(builder, catalog.binder, catalog.relations(), name, text, on_close, limits)
    view = _view(builder, name, relation.step, before)
    held = dict(view.columns)
    asked = [column for column, _ in catalog.binder.describe(as_plain_sql(text))]
    shown = _shown(name, asked, [c.name for c in relation.columns])
    columns = tuple(
        SqlColumn(seen, c.type, stored=None if (at := held.get(c.name, c.name)) == seen else at)
        for seen, c in zip(shown, relation.columns, strict=True)
    )
    if shown != [c.name for c in relation.columns]:
        made_view = replace(view, columns=tuple((c.name, c.held) for c in columns))
        builder.change(lambda plan: replace(plan, views={**plan.views, name: made_view}))
    uses = (*(o.name for o in catalog.read_by(as_plain_sql(text))), *made.uses)
    return SqlObject(
        "materialized view",
        name,
        columns,
        text=text,
        step=view.step,
        uses=uses,
        options=made.options,
        said=said,
    )


def _shown(view: str, asked: Sequence[str], given: Sequence[str]) -> list[str]:
    """The names of a view's columns: those of the query, also where rows are kept under others.

    Steps have no columns that begin with an underscore; people may.
    """
    taken = {name.lower() for name in given}
    found = []
    for wanted, name in zip(asked, given, strict=True):
        if wanted.lower() == WEIGHT:
            raise InvalidError(
                f"column {wanted!r} of view {view!r} cannot have this name",
                detail="changes of a view have their weight under it",
                hint="choose another name",
            )
        hidden = wanted.startswith("_") and wanted.lower() not in taken
        taken.add(wanted.lower())
        found.append(wanted if hidden else name)
    return found


def _view(builder: Builder, name: str, step: str, before: Mapping[str, Node]) -> View:
    """The view of a step: the table below it where that holds the same rows, else one of its own."""
    own = own_view(builder.plan, name, step)
    if own is None:
        Stream(builder, step).view(name)
        return builder.plan.views[name]
    if step not in before:
        builder.change(lambda plan: without_step(plan, step))
    builder.change(lambda plan: plan.with_view(own))
    return own


def view_text(words: Words, *, closes: bool) -> tuple[str, bool]:
    """The query behind AS, and whether it ends in EMIT ON WINDOW CLOSE."""
    names = words.names() if words.piece.word(words.at) == "(" else None
    no_options(words, "a materialized view" if closes else "a view")
    words.need("AS")
    body = words.rest
    on_close = len(body) > 4 and body.has(len(body) - 4, "EMIT", "ON", "WINDOW", "CLOSE")
    if on_close:
        if not closes:
            raise InvalidError("only a materialized view can EMIT ON WINDOW CLOSE")
        body = body.part(0, len(body) - 4)
    if not body.tokens:
        words.fail("a query should stand here")
    text = readable(body)
    if names is not None:
        listed = ", ".join(quoted(n) for n in names)
        text = f"select * from (\n{text}\n) as named({listed})"
    return text, on_close
