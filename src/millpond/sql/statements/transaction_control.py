"""BEGIN, COMMIT, ROLLBACK and the savepoints inside a transaction.

Every isolation level that can be named is given as SERIALIZABLE, which the SQL standard allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.sql.result import Result
from millpond.sql.text.parameters import Params
from millpond.sql.text.parse import SqlFragment, Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

VERBS = ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE")
_LEVELS = (("SERIALIZABLE",), ("REPEATABLE", "READ"), ("READ", "COMMITTED"), ("READ", "UNCOMMITTED"))


def run(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    words = Words(fragment, 1)
    match fragment.word(0):
        case "BEGIN" | "START":
            return _begin(session, words)
        case "COMMIT" | "END":
            return _commit(session, words)
        case "ROLLBACK" | "ABORT":
            return _rollback(session, words)
        case "SAVEPOINT":
            session.require_transaction("SAVEPOINT").savepoint(_last_name(words))
            return Result.said("SAVEPOINT")
        case _:
            words.take("SAVEPOINT")
            session.require_transaction("RELEASE SAVEPOINT").release(_last_name(words))
            return Result.said("RELEASE")


def _begin(session: SqlSession, words: Words) -> Result:
    started = words.fragment.word(0) == "START"
    if started:
        words.need("TRANSACTION")
    elif not words.take("WORK"):
        words.take("TRANSACTION")
    read_only = False
    while not words.over:
        if words.take("ISOLATION", "LEVEL"):
            if not any(words.take(*level) for level in _LEVELS):
                words.fail("an isolation level should stand here")
        elif words.take("READ", "ONLY"):
            read_only = True
        elif words.take("READ", "WRITE"):
            read_only = False
        elif not (words.take("NOT", "DEFERRABLE") or words.take("DEFERRABLE") or words.take(",")):
            words.fail("this is no option of a transaction")
    if session.transaction is not None:
        return _warned("BEGIN", "there is already a transaction in progress")
    session.begin(read_only=read_only)
    return Result.said("START TRANSACTION" if started else "BEGIN")


def _end(words: Words) -> None:
    if not words.take("WORK"):
        words.take("TRANSACTION")
    words.take("AND", "NO", "CHAIN")
    words.end()


def _commit(session: SqlSession, words: Words) -> Result:
    _end(words)
    if session.transaction is None:
        return _warned("COMMIT", "there is no transaction in progress")
    if session.transaction.failed:
        session.rollback()
        return Result.said("ROLLBACK")
    return Result.said("COMMIT", session.commit_transaction())


def _rollback(session: SqlSession, words: Words) -> Result:
    if words.take("TO") or words.take("WORK", "TO") or words.take("TRANSACTION", "TO"):
        words.take("SAVEPOINT")
        session.require_transaction("ROLLBACK TO SAVEPOINT").rollback_to(_last_name(words))
        return Result.said("ROLLBACK")
    _end(words)
    if session.transaction is None:
        return _warned("ROLLBACK", "there is no transaction in progress")
    session.rollback()
    return Result.said("ROLLBACK")


def _last_name(words: Words) -> str:
    name = words.name("name of the savepoint")
    words.end()
    return name


def _warned(status: str, warning: str) -> Result:
    result = Result.said(status)
    result.warnings.append(warning)
    return result
