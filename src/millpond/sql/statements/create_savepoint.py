"""CREATE SAVEPOINT and DROP SAVEPOINT: named epochs stay readable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.errors import InvalidError
from millpond.sql.result import Result
from millpond.sql.text.parse import Words, closest_name

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def run(session: SqlSession, words: Words) -> Result:
    exists = words.if_not_exists()
    name = words.name("name of the savepoint")
    words.end()
    session.require_epoch()
    if name in session.host.savepoints():
        if exists:
            return Result.said(f"CREATE_SAVEPOINT {name}: there already")
        raise InvalidError(f"there is a savepoint named {name!r} already", hint="drop it first")
    session.host.savepoint(name)
    return Result.said("CREATE_SAVEPOINT")


def run_drop(session: SqlSession, words: Words) -> Result:
    exists = words.if_exists()
    name = words.name("name of the savepoint")
    words.end()
    session.require_epoch()
    known = sorted(session.host.savepoints())
    if name not in known:
        if exists:
            return Result.said(f"DROP_SAVEPOINT {name}: not there")
        raise InvalidError(
            f"no savepoint named {name!r}",
            detail=f"savepoints are {', '.join(known) or 'none'}",
            hint=closest_name(name, known),
        )
    session.host.drop_savepoint(name)
    return Result.said("DROP_SAVEPOINT")
