"""UPDATE: logic that is executed in its turn, so that concurrent ones all count."""

from __future__ import annotations

from millpond.sql.functions import inlined_piece
from millpond.sql.parameters import Params, with_literals
from millpond.sql.parse import Piece, Words, readable
from millpond.sql.result import Result
from millpond.sql.session import Session
from millpond.sql.statements.rows import at_this_time, cut_returning, dry_run, in_turn, keys_of, named, target


def run(session: Session, piece: Piece, params: Params) -> Result:
    piece = inlined_piece(with_literals(piece, params), session.catalog.objects)
    piece = at_this_time(session, piece)
    words = Words(piece, 1)
    found = target(session, words.name("name of the table"), "update")
    alias = None
    if not words.piece.has(words.at, "SET"):
        words.take("AS")
        alias = words.name("alias")
    words.need("SET")
    catalog = session.catalog
    reads = [o for o in named(catalog, words.rest) if o.name != found.name]
    piece, returning = cut_returning(piece, alias or found.name)
    sql = readable(piece)
    names = dry_run(catalog, found, reads, "update", sql, returning)
    named_in = {t.text.lower() for t in piece.part(words.at, piece.find("WHERE", start=words.at)).tokens}
    moves = any(k.lower() in named_in for k in found.key)
    keys = keys_of(catalog, found, piece, alias)
    return in_turn(
        session, found, "update", sql, reads, keys=keys, moves=moves, returning=returning, names=names
    )
