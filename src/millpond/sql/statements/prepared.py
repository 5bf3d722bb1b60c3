"""PREPARE, EXECUTE and DEALLOCATE: statements with parameters that a session keeps by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond.errors import InvalidError
from millpond.sql.reads.scratch import thread_scratch
from millpond.sql.result import Result
from millpond.sql.text.duckdb_text import readable_text
from millpond.sql.text.parameters import Params, marks, with_literals
from millpond.sql.text.parse import SqlFragment, Words, statements
from millpond.sql.text.type_names import type_of

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

PREPARED_MAX = 1000
KINDS = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "(", "INSERT", "UPDATE", "DELETE", "MERGE")


@dataclass(frozen=True)
class Prepared:
    """A statement, and the types of its parameters as far as they were given."""

    fragment: SqlFragment
    types: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many values EXECUTE must give."""
        used = (which for _, _, which in marks(self.fragment.tokens, None) if isinstance(which, int))
        return max([len(self.types), *used])


def prepare(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    words = Words(fragment, 1)
    name = words.name("name of the statement")
    types: tuple[str, ...] = ()
    if fragment.word(words.at) == "(":
        inner, words.at = fragment.bracket(words.at)
        types = tuple(type_of(part) for part in inner.split(types=True))
    words.need("AS")
    if words.fragment.word(words.at) not in KINDS:
        words.fail("only a query or a change of rows can be prepared")
    if name in session.prepared:
        raise InvalidError(f'prepared statement "{name}" already exists', hint=f"DEALLOCATE {name}")
    if len(session.prepared) >= PREPARED_MAX:
        raise InvalidError(
            "too many prepared statements", detail=f"at most {PREPARED_MAX}", hint="DEALLOCATE some of them"
        )
    (made,) = statements(words.rest.sql, fragment.dialect)
    session.prepared[name] = Prepared(made, types)
    return Result.said("PREPARE")


def execute(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    words = Words(with_literals(fragment, params), 1)
    name = words.name("name of the statement")
    known = session.prepared.get(name)
    if known is None:
        raise _missing(name)
    given: list[SqlFragment] = []
    if words.fragment.word(words.at) == "(":
        inner, words.at = words.fragment.bracket(words.at)
        given = inner.split() if inner.tokens else []
    words.end()
    if len(given) != known.count:
        raise InvalidError(
            f'wrong number of parameters for prepared statement "{name}"',
            detail=f"expected {known.count} parameters but got {len(given)}",
        )
    return session.run_one(known.fragment, _values(session, given, known.types))


def _values(session: SqlSession, given: list[SqlFragment], types: tuple[str, ...]) -> list[Any] | None:
    """The values of constant expressions."""
    if not given:
        return None
    typed = [*types, *[None] * (len(given) - len(types))]
    listed = ", ".join(
        f"({part.sql})" if kind is None else f"CAST(({part.sql}) AS {kind})"
        for part, kind in zip(given, typed, strict=True)
    )
    sql = readable_text(f"select {listed}", given[0].dialect)
    with thread_scratch(session.time_zone).for_statement() as scratch:
        (row,) = scratch.run(sql, shown=sql).fetchall()  # all of it, so that the connection is free again
    return list(row)


def deallocate(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    words = Words(fragment, 1)
    words.take("PREPARE")
    if words.take("ALL"):
        words.end()
        session.prepared.clear()
        return Result.said("DEALLOCATE_ALL")
    name = words.name("name of the statement")
    words.end()
    if session.prepared.pop(name, None) is None:
        raise _missing(name)
    return Result.said("DEALLOCATE")


def _missing(name: str) -> InvalidError:
    return InvalidError(
        f'prepared statement "{name}" does not exist', hint="PREPARE it first, in the same session"
    )
