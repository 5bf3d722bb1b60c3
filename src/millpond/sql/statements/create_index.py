"""CREATE INDEX: stores a second copy of a table's or view's rows, keyed by other columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.plan.objects import SqlObject
from millpond.sql.result import Result
from millpond.sql.statements.create_object import create
from millpond.sql.text.options import no_options
from millpond.sql.text.other_systems import refuse_options
from millpond.sql.text.parse import Words, closest_name

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def run(replaces: bool) -> Callable[[SqlSession, Words], Result]:
    def called(session: SqlSession, words: Words) -> Result:
        refuse_options(words, "an index")
        exists = words.if_not_exists()
        called = None if words.fragment.word(words.at) == "ON" else words.name("name of the index")
        words.need("ON")
        words.take("ONLY")
        on = words.name("name of the table or view")
        if words.take("USING") and not words.take("BTREE"):
            words.fail("an index finds rows by key, as BTREE does", "leave out USING")
        named = words.names(ordered=True)  # an index finds rows by key, and keeps no order
        included = words.names() if words.take("INCLUDE") else []  # an index has all columns
        refuse_options(words, "an index")
        no_options(words, "an index")
        words.end()
        name = called if called is not None else _free_name(session, "_".join((on, *named, "idx")))

        def make(builder: Builder) -> SqlObject:
            found = session.catalog.get(on, "table", "materialized view")
            known = {c.name.lower(): c.name for c in found.columns}
            held = {c.name.lower(): c.stored_name for c in found.columns}
            odd = [n for n in (*named, *included) if n.lower() not in known]
            if odd:
                raise InvalidError(
                    f"{found.name!r} has no column {odd[0]!r}",
                    detail=f"columns are {', '.join(known.values())}",
                    hint=closest_name(odd[0], list(known.values())),
                )
            key = tuple(known[n.lower()] for n in named)
            step = builder.plan.views[found.name].step
            view = Stream(builder, step).view(name, key=[held[n.lower()] for n in named])
            return SqlObject(
                "index", name, found.columns, key, step=view.step, uses=(found.name,), said=words.fragment.sql
            )

        return create(session, name, "index", exists=exists, replaces=replaces, make=make)

    return called


def _free_name(session: SqlSession, name: str) -> str:
    """The name that PostgreSQL gives to an index without one."""
    made, number = name, 1
    while session.catalog.find(made) is not None:
        made, number = f"{name}{number}", number + 1
    return made
