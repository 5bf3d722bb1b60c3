"""CREATE [UNIQUE] INDEX: stores a second copy of a table's or view's rows, keyed by other columns.

A unique index is also a rule of its table, as a UNIQUE constraint is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.plan.objects import SqlObject
from millpond.sql.result import Result
from millpond.sql.statements.added_rules import add_unique_index
from millpond.sql.statements.create_object import create
from millpond.sql.text.options import no_options
from millpond.sql.text.other_systems import refuse_options
from millpond.sql.text.parse import Words, closest_name

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


@dataclass(frozen=True)
class _Written:
    """What follows CREATE [UNIQUE] INDEX."""

    name: str | None
    on: str
    columns: list[str]
    included: list[str]
    if_not_exists: bool

    def free_name(self, session: SqlSession) -> str:
        """The name of the index; the one that PostgreSQL gives if it has none."""
        if self.name is not None:
            return self.name
        first = name = "_".join((self.on, *self.columns, "idx"))
        number = 1
        while session.catalog.find(name) is not None:
            name, number = f"{first}{number}", number + 1
        return name


def _read(words: Words) -> _Written:
    refuse_options(words, "an index")
    exists = words.if_not_exists()
    name = None if words.fragment.word(words.at) == "ON" else words.name("name of the index")
    words.need("ON")
    words.take("ONLY")
    on = words.name("name of the table or view")
    if words.take("USING") and not words.take("BTREE"):
        words.fail("an index finds rows by key, as BTREE does", "leave out USING")
    _refuse_expressions(words)
    columns = words.names(ordered=True)  # an index finds rows by key, and keeps no order
    included = words.names() if words.take("INCLUDE") else []  # an index has all columns
    refuse_options(words, "an index")
    if words.fragment.word(words.at) == "WHERE":
        words.fail(
            "WHERE is not supported for an index",
            "it has all rows of its table: leave WHERE out, or index a view of the rows",
        )
    no_options(words, "an index")
    words.end()
    return _Written(name, on, columns, included, exists)


def _refuse_expressions(words: Words) -> None:
    inner, _ = words.fragment.bracket(words.at)
    for part in inner.split() if inner.tokens else []:
        if part.tokens and (part.word(0) == "(" or part.word(1) == "("):
            part.fail(
                "an expression is not supported in an index",
                0,
                "index a column that CREATE TABLE generates: GENERATED ALWAYS AS (…) STORED",
            )


def run(replaces: bool) -> Callable[[SqlSession, Words], Result]:
    def called(session: SqlSession, words: Words) -> Result:
        said = words.fragment.sql
        written = _read(words)
        name = written.free_name(session)
        old = session.catalog.find(name)
        if replaces and old is not None and old.kind == "index":
            _refuse_rule(session, old)

        def make(builder: Builder) -> SqlObject:
            found = session.catalog.get(written.on, "table", "materialized view")
            known = {c.name.lower(): c.name for c in found.columns}
            held = {c.name.lower(): c.stored_name for c in found.columns}
            _known_columns(found, written)
            key = tuple(known[n.lower()] for n in written.columns)
            step = builder.plan.views[found.name].step
            view = Stream(builder, step).view(name, key=[held[n.lower()] for n in written.columns])
            return SqlObject("index", name, found.columns, key, step=view.step, uses=(found.name,), said=said)

        return create(session, name, "index", exists=written.if_not_exists, replaces=replaces, make=make)

    return called


def run_unique(session: SqlSession, words: Words) -> Result:
    written = _read(words)
    name = written.free_name(session)
    if written.if_not_exists and session.catalog.find(name) is not None:
        return Result.said(f"CREATE_INDEX {name}: there already")
    found = session.catalog.get(written.on, "table", "materialized view")
    if found.kind != "table":
        raise InvalidError(
            f"a unique index is for a table, {found.name!r} is a {found.kind}",
            hint="leave out UNIQUE: a view has the rows that its query gives",
        )
    _known_columns(found, written)
    add_unique_index(session, found, name, written.columns)
    return Result.said("CREATE_INDEX")


def _known_columns(found: SqlObject, written: _Written) -> None:
    known = [c.name for c in found.columns]
    lower = {name.lower() for name in known}
    odd = [n for n in (*written.columns, *written.included) if n.lower() not in lower]
    if odd:
        raise InvalidError(
            f"{found.name!r} has no column {odd[0]!r}",
            detail=f"columns are {', '.join(known)}",
            hint=closest_name(odd[0], known),
        )


def _refuse_rule(session: SqlSession, index: SqlObject) -> None:
    """Refuse to replace the index of a rule: its table would go on to look up the rule's columns in it."""
    table = session.catalog.find(index.uses[0])
    if table is not None and any(rule.name == index.name for rule in table.constraints):
        raise InvalidError(
            f"index {index.name!r} belongs to a rule of table {table.name!r}, it is not replaced",
            hint="create an index with another name",
        )
