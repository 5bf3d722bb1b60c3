"""INSERT: rows that stand in the statement go to the inbox as rows; what reads tables waits for its turn."""

from __future__ import annotations

from millpond.sql.change_rows import answer
from millpond.sql.conflicts import check_given
from millpond.sql.definitions import stored_schema
from millpond.sql.functions import inlined_piece
from millpond.sql.parameters import Params, with_literals
from millpond.sql.parse import Piece, Words, readable
from millpond.sql.result import Result
from millpond.sql.scratch import own_scratch, returned
from millpond.sql.session import Session
from millpond.sql.statements.rows import at_this_time, cut_returning, dry_run, in_turn, named, target


def run(session: Session, piece: Piece, params: Params) -> Result:
    piece = inlined_piece(with_literals(piece, params), session.catalog.objects)
    words = Words(piece, 1)
    words.need("INTO")
    found = target(session, words.name("name of the table"), "insert")
    conflict = piece.find("ON", "CONFLICT") is not None
    if conflict and not found.key:
        at = piece.find("ON", "CONFLICT") or 0
        piece.fail("ON CONFLICT needs a table with a primary key", at, "leave it out: every row is kept")
    catalog = session.catalog
    rest = words.rest
    looks = not {"FROM", "TABLE", "JOIN"}.isdisjoint(rest.words)
    reads = named(catalog, rest) if looks else []
    alias = words.name("alias") if words.take("AS") else found.name
    if reads or conflict:
        piece, returning = cut_returning(at_this_time(session, piece), alias)
        sql = readable(piece)
        names = dry_run(catalog, found, reads, "insert", sql, returning)
        if not reads:  # all rows are known now; those of a query are when its turn comes
            with own_scratch().turn(session.pond._clock.now_us()) as scratch:
                check_given(scratch, found, sql)
        return in_turn(
            session, found, "insert", sql, reads, conflict=conflict, returning=returning, names=names
        )
    piece, returning = cut_returning(piece, alias)
    sql = readable(piece)
    with own_scratch().turn(session.pond._clock.now_us()) as scratch:
        scratch.table(found)
        rows = scratch.arrow(f"{sql} RETURNING {returned(found.columns)}", shown=sql)
        rows = rows.cast(stored_schema(found.columns))
        names, given = ([], None) if returning is None else answer(scratch, found, rows, returning)
    assert found.scan is not None
    session.pond._door.rows(found.scan, rows, 1)
    return Result.changed("INSERT", rows.num_rows, names, given)
