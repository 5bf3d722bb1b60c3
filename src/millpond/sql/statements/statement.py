"""How the session runs each kind of statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millpond.sql.result import Result
from millpond.sql.text.parameters import Params, with_literals
from millpond.sql.text.parse import SqlFragment, Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


@dataclass(frozen=True)
class Statement:
    """A kind of statement, and how the session runs it.

    `defines`: it only changes the plan; it is committed together with the definitions that follow it.
    `outside_lock`: it may wait for a long time, so other threads can run statements meanwhile.
    `independent`: it only reads, and waits neither for other threads nor for a commit.
    `controls`: it begins or ends a transaction.
    `joins_text`: changes of rows before and after it in one text are sent together.
    `alone`: it cannot be part of a transaction.
    """

    run: Callable[[SqlSession, SqlFragment, Params], Result]
    defines: bool = False
    outside_lock: bool = False
    independent: bool = False
    controls: bool = False
    joins_text: bool = False
    alone: bool = False


def defining(words_at: int, run: Callable[[SqlSession, Words], Result]) -> Statement:
    """Create a definition statement; parameters become literals, and `words_at` words are already read."""

    def call(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
        return run(session, Words(with_literals(fragment, params), words_at))

    return Statement(call, defines=True)


def reading(
    words_at: int,
    run: Callable[[SqlSession, Words], Result],
    *,
    outside_lock: bool = False,
    independent: bool = False,
    alone: bool = False,
) -> Statement:
    """A statement that changes neither the plan nor rows."""

    def call(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
        return run(session, Words(with_literals(fragment, params), words_at))

    return Statement(call, outside_lock=outside_lock, independent=independent, alone=alone)
