"""What INSERT, UPDATE and DELETE share: a change that waits for its turn in the inbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import TokenType

from millpond.errors import InvalidError
from millpond.plan.objects import SqlObject
from millpond.sql.catalog import Catalog
from millpond.sql.change_rows import answer
from millpond.sql.definitions import stored_schema
from millpond.sql.done import done
from millpond.sql.keys import constant_keys
from millpond.sql.parameters import literal_of
from millpond.sql.parse import Piece, readable_text
from millpond.sql.result import Result
from millpond.sql.scratch import PLACE, own_scratch, returned
from millpond.sql.session import Session
from millpond.sql.types import quoted
from millpond.state.inbox import LOGIC

_NOW = ("NOW", "PROCTIME", "CURRENT_TIMESTAMP", "TRANSACTION_TIMESTAMP", "GET_CURRENT_TIMESTAMP")
_TODAY = ("CURRENT_DATE", "TODAY")
_CHANCE = ("RANDOM", "UUID", "GEN_RANDOM_UUID", "UUIDV4", "UUIDV7", "SETSEED", "NEXTVAL", "CURRVAL")
_CLOCKS = ("LOCALTIME", "LOCALTIMESTAMP", "CURRENT_TIME", "CLOCK_TIMESTAMP")


def target(session: Session, name: str, verb: str) -> SqlObject:
    found = session.catalog.get(name)
    if found.kind != "table":
        raise InvalidError(
            f"{found.name!r} is a {found.kind}: only the rows of tables can be changed",
            hint="change the tables that it is made of",
        )
    if found.append_only and verb != "insert":
        raise InvalidError(
            f"table {found.name!r} is APPEND ONLY: no row of it can be changed or deleted",
            hint="make a table without APPEND ONLY; it has no watermark then",
        )
    return found


def cut_returning(piece: Piece, called: str) -> tuple[Piece, list[str] | None]:
    """The change alone; and what stands behind its RETURNING, with the name the table has there."""
    at = piece.find("RETURNING")
    if at is None:
        return piece, None
    listed = piece.part(at + 1)
    if not listed.tokens:
        piece.fail("what should it give?", at, "RETURNING * or some of the columns")
    text = readable_text(f"select {listed.sql}", piece.dialect)[len("select ") :]
    return piece.part(0, at), [text, called]


def named(catalog: Catalog, piece: Piece) -> list[SqlObject]:
    """All objects whose names stand in a piece; a column of such a name does no harm."""
    words = {t.text.lower() for t in piece.tokens if t.token_type is not TokenType.STRING}
    unread = ("sink", "index", "function")
    found = [o for o in catalog.objects.values() if o.name.lower() in words and o.kind not in unread]
    for one in found:
        if one.kind == "source":
            raise InvalidError(
                f"the rows of source {one.name!r} are not kept", hint="create a materialized view of it"
            )
    return found


def at_this_time(session: Session, piece: Piece) -> Piece:
    """The piece with the time of now written into it: executed later or again, it means the same."""
    edits = []
    tokens = piece.tokens
    now = literal_of(_now(session))
    for n in range(len(tokens)):
        word, call = piece.word(n), piece.word(n + 1) == "("
        if word in _CHANCE and call:
            hint = "make the value where the statement is made, and pass it as a parameter"
            piece.fail(
                f"{word.lower()}() gives another value each time, and cannot be part of a change", n, hint
            )
        if word in _CLOCKS:
            piece.fail(f"{word.lower()} is not supported in a change", n, "use now()")
        if (word in _NOW or word in _TODAY) and (call or word.startswith("CURRENT")):
            end = n + 2 if call else n
            fresh = now if word in _NOW else f"CAST({now} AS DATE)"
            edits.append((tokens[n].start, tokens[end].end + 1, fresh))
    return piece.rewritten(edits) if edits else piece


def _now(session: Session) -> Any:
    import datetime

    return datetime.datetime.fromtimestamp(session.pond._clock.now_us() / 1e6, datetime.UTC)


def dry_run(
    catalog: Catalog,
    found: SqlObject,
    reads: Sequence[SqlObject],
    verb: str,
    sql: str,
    returning: Sequence[str] | None = None,
) -> list[tuple[str, str]]:
    """The statement over empty tables: what is wrong with it is told now; the columns that it returns."""
    with own_scratch().turn() as scratch:
        scratch.table(found, places=verb != "insert", key=verb == "insert")
        for one in catalog.expanded(reads):
            if one.name == found.name:
                continue
            if one.kind == "view":
                scratch.view(one.name, one.text)
            else:
                spec = catalog.stored(one)
                if spec is None:
                    raise InvalidError(f"the rows of {one.kind} {one.name!r} are not kept")
                scratch.relation(one, spec.schema.empty_table())
        listed = [] if verb == "delete" else [returned(found.columns)]
        listed += [] if verb == "insert" else [quoted(PLACE)]
        scratch.arrow(f"{sql} RETURNING {', '.join(listed)}", shown=sql)
        if returning is None:
            return []
        return answer(scratch, found, stored_schema(found.columns).empty_table(), returning)[0]


def in_turn(
    session: Session,
    found: SqlObject,
    verb: str,
    sql: str,
    reads: Sequence[SqlObject],
    *,
    keys: list[Any] | None = None,
    conflict: bool = False,
    moves: bool = False,
    returning: Sequence[str] | None = None,
    names: Sequence[tuple[str, str]] = (),
) -> Result:
    """Durable when this returns; executed after all changes before it."""
    args: dict[str, Any] = {
        "table": found.scan,
        "name": found.name,
        "verb": verb,
        "sql": sql,
        "reads": [o.name for o in reads],
        "now_us": session.pond._clock.now_us(),  # for defaults
        "columns": [[c.name, c.held] for c in found.columns],
    }
    if keys is not None:
        args["keys"] = [list(k) for k in keys]
    if conflict:
        args["conflict"] = True
    if moves:
        args["moves"] = True  # rows get other keys
    if returning is not None:
        args["returning"] = list(returning)
    number = session.pond._door.put(LOGIC, args)
    return Result.changed(verb.upper(), None, names, later=lambda: done(session.pond, number))


def keys_of(catalog: Catalog, found: SqlObject, piece: Piece, alias: str | None) -> list[Any] | None:
    """The only keys that a change can touch, if its condition says so and it looks at no other rows."""
    spec, at = catalog.stored(found), piece.find("WHERE")
    looks = any(piece.word(n) in ("SELECT", "FROM", "TABLE", "USING") for n in range(2, len(piece)))
    if at is None or spec is None or not found.key or looks:
        return None
    where = piece.part(at)
    called = f"as {quoted(alias)} " if alias else ""
    keys = constant_keys(f"{called}{where.sql}", found, spec)
    if keys is None or not all(isinstance(v, int | str) for key in keys for v in key):
        return None
    return keys
