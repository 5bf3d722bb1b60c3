"""CREATE TABLE … AS and SELECT … INTO: a new table with the rows of a query.

The table is defined, and then the rows are inserted as INSERT … SELECT does it: in the order of the inbox.
If the query fails then, the table is dropped again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.errors import ConflictError, InvalidError
from millpond.sql.binding.functions import inlined
from millpond.sql.binding.output_columns import check_unique
from millpond.sql.binding.types import UTC, quoted
from millpond.sql.result import Result
from millpond.sql.text.duckdb_text import readable
from millpond.sql.text.other_systems import refuse_options, skip_storage
from millpond.sql.text.parameters import Params, with_literals
from millpond.sql.text.parse import SqlFragment, Words, statements

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def is_create_as(fragment: SqlFragment, at: int) -> bool:
    """Does a query follow CREATE TABLE, whose words end at `at`, and not columns with types?"""
    words = Words(fragment, at)
    words.if_not_exists()
    if words.over or fragment.word(words.at) in ("(", "AS"):
        return False
    words.name("name of the table")
    if fragment.word(words.at) == "(":
        words.at = fragment.bracket(words.at)[1]
    skip_storage(words)
    while fragment.has(words.at, "WITH", "("):
        words.at = fragment.bracket(words.at + 1)[1]
    return fragment.word(words.at) == "AS"


def run(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    replaces = fragment.has(1, "OR", "REPLACE")
    words = Words(with_literals(fragment, params), 4 if replaces else 2)
    exists = words.if_not_exists()
    at = words.at
    words.name("name of the table")
    name = _text(words.fragment.part(at, words.at))
    columns = words.names() if words.fragment.word(words.at) == "(" else None
    skip_storage(words)
    refuse_options(words, "a table")
    words.need("AS")
    query, with_data = words.rest, True
    if query.words[-2:] == ("WITH", "DATA"):
        query = query.part(0, len(query) - 2)
    elif query.words[-3:] == ("WITH", "NO", "DATA"):
        query, with_data = query.part(0, len(query) - 3), False
    if not query.tokens:
        words.fail("a query should follow AS")
    create = f"CREATE{' OR REPLACE' if replaces else ''} TABLE"
    if exists and session.catalog.find(Words(words.fragment, at).name()) is not None:
        return Result.said(f"CREATE_TABLE {name}: there already")
    return _create(session, create, name, query, columns, with_data)


def is_select_into(fragment: SqlFragment) -> bool:
    """Is it SELECT … INTO table?"""
    return fragment.word(0) in ("SELECT", "WITH") and _into(fragment) is not None


def _into(fragment: SqlFragment) -> int | None:
    return fragment.find("INTO") if "INSERT" not in fragment.words and "MERGE" not in fragment.words else None


def run_select_into(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    fragment = with_literals(fragment, params)
    into = _into(fragment)
    assert into is not None
    words = Words(fragment, into + 1)
    for kind in ("TEMPORARY", "TEMP", "UNLOGGED"):
        if fragment.word(words.at) == kind:
            words.fail(f"{kind} tables are not supported", "leave the word out: a table is durable")
    words.take("TABLE")
    at = words.at
    words.name("name of the table")
    name = _text(fragment.part(at, words.at))
    start, end = fragment.tokens[into].start, fragment.tokens[words.at - 1].end + 1
    return _create(session, "CREATE TABLE", name, fragment.rewritten([(start, end, "")]), None, True)


def _text(name: SqlFragment) -> str:
    return name.sql


def _create(
    session: SqlSession,
    create: str,
    name: str,
    query: SqlFragment,
    columns: list[str] | None,
    with_data: bool,
) -> Result:
    with session.lock:
        catalog = session.catalog
        sql = inlined(readable(query), catalog.objects).sql
        if columns is None:
            check_unique(catalog, sql)
        described = catalog.binder.describe(sql)
        if columns is not None and len(columns) > len(described):
            raise InvalidError(
                "too many column names were specified",
                detail=f"{len(columns)} names, and the query has {len(described)} columns",
            )
        names = [*(columns or []), *[n for n, _ in described[len(columns or []) :]]]
        listed = ", ".join(f"{quoted(n)} {t}" for n, (_, t) in zip(names, described, strict=True))
        _run(session, f"{create} {name} ({listed})", "duckdb")
        session.commit()
        if not with_data:
            return Result.said("CREATE_TABLE_AS")
        inserted = _run(session, f"INSERT INTO {name} {query.sql}", query.dialect)
    try:
        count = inserted.rowcount
        written = session.host.last_written
        if written is not None:  # rows without a query: they are not waited for otherwise
            session.host.wait_executed(written)
    except (InvalidError, ConflictError):
        with session.lock:
            _run(session, f"DROP TABLE {name}", "duckdb")
            session.commit()
        raise
    return Result.said(f"SELECT {count}", inserted.epoch)


def _run(session: SqlSession, text: str, dialect: str) -> Result:
    (fragment,) = statements(text, dialect)
    if dialect != "duckdb":
        return session.run_one(fragment)
    before = session.variables
    session.set_variables(replace(before, time_zone=UTC))  # names and types: a zone has no meaning for them
    try:
        return session.run_one(fragment)
    finally:
        session.set_variables(before)
