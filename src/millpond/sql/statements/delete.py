"""DELETE: logic that is executed in its turn, like UPDATE."""

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
    words.need("FROM")
    found = target(session, words.name("name of the table"), "delete")
    alias = None
    if not words.over and piece.word(words.at) not in ("WHERE", "USING", "RETURNING"):
        words.take("AS")
        alias = words.name("alias")
    catalog = session.catalog
    reads = [o for o in named(catalog, words.rest) if o.name != found.name]
    piece, returning = cut_returning(piece, alias or found.name)
    sql = readable(piece)
    names = dry_run(catalog, found, reads, "delete", sql, returning)
    keys = keys_of(catalog, found, piece, alias)
    return in_turn(session, found, "delete", sql, reads, keys=keys, returning=returning, names=names)
