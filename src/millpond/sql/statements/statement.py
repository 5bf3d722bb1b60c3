"""What a statement is to the session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millpond.sql.parameters import Params, with_literals
from millpond.sql.parse import Piece, Words
from millpond.sql.result import Result

if TYPE_CHECKING:
    from millpond.sql.session import Session


@dataclass(frozen=True)
class Statement:
    """`defines`: it only changes the program to come, and may wait for the next ones.

    `waits`: other threads may run statements meanwhile.
    `beside`: it looks on, and is not kept waiting by what others do.
    """

    run: Callable[[Session, Piece, Params], Result]
    defines: bool = False
    waits: bool = False
    beside: bool = False


def defining(words_at: int, run: Callable[[Session, Words], Result]) -> Statement:
    """A definition: parameters are written into it; `words_at` words of it are read already."""

    def call(session: Session, piece: Piece, params: Params) -> Result:
        return run(session, Words(with_literals(piece, params), words_at))

    return Statement(call, defines=True)


def reading(
    words_at: int, run: Callable[[Session, Words], Result], *, waits: bool = False, beside: bool = False
) -> Statement:
    """It answers with what is there."""

    def call(session: Session, piece: Piece, params: Params) -> Result:
        return run(session, Words(with_literals(piece, params), words_at))

    return Statement(call, waits=waits, beside=beside)
