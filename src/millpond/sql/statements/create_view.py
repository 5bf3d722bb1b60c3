"""CREATE VIEW names a query; CREATE MATERIALIZED VIEW also stores its rows and keeps them up to date."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.functions import inlined
from millpond.sql.binding.known_columns import by_column_types
from millpond.sql.binding.output_columns import check_unique
from millpond.sql.binding.types import quoted
from millpond.sql.diagnosis.statements import refuse_wrong_types
from millpond.sql.reads.system_names import system_reads
from millpond.sql.result import Result
from millpond.sql.statements.create_object import create
from millpond.sql.statements.materialize import materialize
from millpond.sql.text.duckdb_text import readable
from millpond.sql.text.emit_clause import (
    BEFORE_THEY_CLOSE,
    Emission,
    take_emission,
    take_emission_before,
)
from millpond.sql.text.options import no_options, only, read_options
from millpond.sql.text.parse import SqlFragment, Words
from millpond.sql.text.time_windows import as_plain_sql

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def _refuse_into(query: SqlFragment) -> None:
    at = query.find("INTO")
    if at is not None:
        query.fail("views must not contain SELECT INTO", at)


def run(replaces: bool) -> Callable[[SqlSession, Words], Result]:
    def called(session: SqlSession, words: Words) -> Result:
        exists = words.if_not_exists()
        name = words.name("name of the view")
        _refuse_into(words.rest)
        text, _ = view_text(words, closes=False)

        def make(builder: Builder) -> SqlObject:
            catalog = session.catalog
            made = inlined(by_column_types(text, catalog, words.fragment.dialect), catalog.objects)
            sql = as_plain_sql(made.sql)
            refuse_wrong_types(session, words.fragment, catalog.binder.plan(sql))
            check_unique(catalog, sql)
            columns = tuple(SqlColumn(n, t) for n, t in catalog.binder.describe(sql))
            uses = (*(o.name for o in catalog.read_by(sql)), *made.uses)
            return SqlObject(
                "view", name, columns, text=sql, uses=uses, options=made.options, said=words.fragment.sql
            )

        return create(session, name, "view", exists=exists, replaces=replaces, make=make)

    return called


def run_materialized(replaces: bool) -> Callable[[SqlSession, Words], Result]:
    def called(session: SqlSession, words: Words) -> Result:
        exists = words.if_not_exists()
        name = words.name("name of the view")
        exact, error_bound = take_exact(words), take_error_bound(words)
        _refuse_into(words.rest)
        text, emission = view_text(words, closes=True)

        def make(builder: Builder) -> SqlObject:
            catalog = session.catalog
            by_value = by_column_types(text, catalog, words.fragment.dialect)
            check = partial(refuse_wrong_types, session, words.fragment)
            said = words.fragment.sql
            made = materialize(session, builder, name, by_value, emission, said, catalog, check)
            if exact or error_bound is not None:
                marked = {name: replace(builder.plan.views[name], exact=exact, error_bound=error_bound)}
                builder.change(lambda plan: replace(plan, views={**plan.views, **marked}))
            check_unique(catalog, as_plain_sql(made.text))
            return made

        return create(session, name, "materialized view", exists=exists, replaces=replaces, make=make)

    return called


def take_exact(words: Words) -> bool:
    """Read WITH (exact = true): no row that the view reads may be shed."""
    if not words.fragment.has(words.at, "WITH", "("):
        return False
    words.at += 1
    given = read_options(words)
    only(given, ("exact",), "a materialized view")
    value = given.get("exact", "false").lower()
    if value not in ("true", "false"):
        given.parts["exact"].fail("exact is true or false", 0, "write WITH (exact = true)")
    return value == "true"


def take_error_bound(words: Words) -> float | None:
    """Read ERROR BOUND 1 %: the error that load shedding may cause in the view."""
    if not words.fragment.has(words.at, "ERROR", "BOUND"):
        return None
    words.at += 2
    said = words.fragment.word(words.at)
    try:
        percent = float(said)
    except ValueError:
        words.fail("a percentage should stand here")
    words.at += 1
    words.need("%")
    if not 0 < percent < 100:
        raise InvalidError(
            "an error bound is between 0 and 100 %",
            detail=f"got {said} %",
            hint="for example ERROR BOUND 1 %",
        )
    return percent / 100


def view_text(words: Words, *, closes: bool) -> tuple[str, Emission]:
    """Read the query after AS, and its EMIT clause."""
    names = words.names() if words.fragment.word(words.at) == "(" else None
    no_options(words, "a materialized view" if closes else "a view")
    before = take_emission_before(words)
    words.need("AS")
    body, emission = take_emission(words.rest)
    if before is not None and emission != BEFORE_THEY_CLOSE:
        words.fail("a view has one EMIT clause", "write it behind the query")
    emission = before or emission
    if emission != BEFORE_THEY_CLOSE and not closes:
        raise InvalidError(f"only a materialized view can {emission.clause}")
    if not body.tokens:
        words.fail("a query should stand here")
    _, system = system_reads(body, None)
    if system:
        raise InvalidError(
            f"a view cannot read {'.'.join(system[0].path)!r}: it is no input of the pipeline",
            hint="SELECT can read it, also together with views",
        )
    text = readable(body)
    if names is not None:
        listed = ", ".join(quoted(n) for n in names)
        text = f"select * from (\n{text}\n) as named({listed})"
    return text, emission
