"""AS OF: which epoch a read means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from millpond.errors import InvalidError
from millpond.sql.bind import told
from millpond.sql.parameters import Params, with_literals
from millpond.sql.parse import Piece, Words, ask
from millpond.state import history

if TYPE_CHECKING:
    from millpond.pond import Pond

When = int | str | None  # an epoch, a savepoint, or the newest


def as_of(pond: Pond, piece: Piece, params: Params) -> tuple[Piece, When]:
    """The query without its AS OF clauses, and the one moment that they name.

    `AS OF EPOCH 12`, `AS OF SAVEPOINT name`, `FOR SYSTEM_TIME AS OF '2024-01-01 10:00'`.
    """
    found: list[tuple[int, int, When]] = []
    for place in range(len(piece)):
        if piece.has(place, "AS", "OF", "EPOCH") or piece.has(place, "AS", "OF", "SAVEPOINT"):
            words = Words(with_literals(piece.part(place + 3, place + 5), params))
            when: When = words.number() if piece.word(place + 2) == "EPOCH" else words.name("savepoint")
            tokens = 2 if piece.word(place + 3) in ("$", ":") else 1
            found.append((place, place + 3 + tokens, when))
        elif piece.has(place, "FOR", "SYSTEM_TIME", "AS", "OF"):
            stop = _end_of_time(piece, place + 4)
            time = with_literals(piece.part(place + 4, stop), params)
            found.append((place, stop, _epoch_at(pond, time)))
    if not found:
        return piece, None
    if len({when for _, _, when in found}) > 1:
        piece.fail("a query reads one epoch", found[1][0], "name the same one everywhere")
    places = [(piece.tokens[start].start, piece.tokens[stop - 1].end + 1) for start, stop, _ in found]
    return piece.rewritten((a, b, " " * (b - a)) for a, b in places), found[0][2]


def _end_of_time(piece: Piece, place: int) -> int:
    if piece.word(place) in ("TIMESTAMP", "TIMESTAMPTZ", "DATE", "$", ":"):
        return place + 2
    if piece.word(place + 1) == "(":
        return piece.bracket(place + 1)[1]
    if place >= len(piece):
        piece.fail("a time should stand here", place)
    return place + 1


def _epoch_at(pond: Pond, piece: Piece) -> When:
    """The newest epoch whose time is not after this one."""
    if piece.word(0) in ("PROCTIME", "NOW", "CURRENT_TIMESTAMP"):
        return None
    sql = f"select epoch_us(cast({piece.sql} as timestamptz))"
    try:
        at = ask(sql)
    except duckdb.Error as error:
        raise told(error, sql) from error
    if at is None:
        piece.fail("this is not a time")
    head = pond.head()
    low, high, at_us = head.floor, head.epoch, int(at)
    first = history.read_manifest(pond.store, low)
    if first.now_us > at_us:
        raise InvalidError(
            "there is no epoch as old as that", detail=f"the oldest one that is kept is epoch {low}"
        )
    while low < high:
        middle = (low + high + 1) // 2
        if history.read_manifest(pond.store, middle).now_us <= at_us:
            low = middle
        else:
            high = middle - 1
    return low
