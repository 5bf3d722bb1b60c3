"""INSERT: literal rows go to the inbox as rows; an INSERT that reads tables goes there as text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.plan.objects import SqlObject
from millpond.sql.binding.types import quoted
from millpond.sql.dml.assigned_numbers import refuse_given
from millpond.sql.dml.assigned_values import with_declared
from millpond.sql.dml.change_rows import answer
from millpond.sql.dml.conflict_target import conflict_columns, with_named_columns
from millpond.sql.dml.conflicts import check_given
from millpond.sql.dml.deferred_change import (
    change_to_run,
    cut_returning,
    defer_change,
    dry_run,
    named,
    rows_change,
    target,
    with_current_time,
)
from millpond.sql.dml.row_literals import with_arrays, with_read_values
from millpond.sql.dml.table_rules import check_given_rows
from millpond.sql.reads.scratch import returned, thread_scratch
from millpond.sql.result import Result
from millpond.sql.text.column_definitions import stored_schema
from millpond.sql.text.parameters import Params
from millpond.sql.text.parse import SqlFragment, Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_INSTEAD_OF_OR = {  # SQLite's and DuckDB's short forms
    "REPLACE": "INSERT replaces the row with the same primary key; ON CONFLICT DO UPDATE sets single columns",
    "IGNORE": "INSERT … ON CONFLICT DO NOTHING",
}


def run(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    if fragment.word(1) == "OR":
        word = fragment.word(2)
        fragment.fail(f"INSERT OR {word} is not supported", 1, _INSTEAD_OF_OR.get(word, "write ON CONFLICT"))
    dialect = fragment.dialect
    fragment, overriding = _cut_overriding(fragment)
    if "CONSTRAINT" in fragment.words and fragment.has(1, "INTO"):
        named_table = Words(fragment, 2).name("name of the table")
        fragment = with_named_columns(fragment, target(session, named_table, "insert"))
    fragment = change_to_run(session, fragment, params)
    words = Words(fragment, 1)
    words.need("INTO")
    found = target(session, words.name("name of the table"), "insert")
    if dialect == "postgres":
        fragment = _with_columns(session, fragment, words.at, found)
    fragment = with_arrays(fragment, found.columns)
    if dialect == "postgres":
        fragment = with_read_values(fragment, found.columns)
    words = Words(fragment, 1)
    words.need("INTO")
    words.name("name of the table")
    conflict = fragment.find("ON", "CONFLICT") is not None
    meets: tuple[str, ...] = ()  # the columns in which rows meet
    if conflict:
        meets = conflict_columns(fragment, found)
        if meets != found.key:
            fragment = _with_columns(session, fragment, words.at, found, always=True)
        words = Words(fragment, words.at)
    if conflict and any(c.identity is not None and c.name in meets for c in found.columns):
        at = fragment.find("ON", "CONFLICT") or 0
        fragment.fail("ON CONFLICT needs a key that the rows give: this one is assigned", at, "leave it out")
    if conflict and not meets:
        at = fragment.find("ON", "CONFLICT") or 0
        fragment.fail(
            "ON CONFLICT needs a table with a primary key or a UNIQUE constraint",
            at,
            "leave it out: every row is kept",
        )
    update = fragment.find("DO", "UPDATE") if conflict and found.append_only else None
    if update is not None:
        hint = "write ON CONFLICT DO NOTHING"
        fragment.fail("no row of an APPEND ONLY table can be changed", update, hint)
    if conflict:
        fragment = with_declared(fragment, found)
    catalog = session.catalog
    rest = words.rest
    ends = rest.find("RETURNING")
    if ends is not None and "SELECT" not in rest.words[ends:]:  # the names behind it are of the new rows
        rest = rest.part(0, ends)
    looks = not {"FROM", "TABLE", "JOIN"}.isdisjoint(rest.words)
    reads = named(catalog, rest) if looks else []
    alias = words.name("alias") if words.take("AS") else found.name
    met = replace(found, key=meets) if conflict else found
    if reads or conflict:
        fragment, returning = cut_returning(with_current_time(session, fragment), alias)
        sql = fragment.sql
        names = dry_run(session, met, reads, "insert", sql, returning)
        if not reads:  # all rows are known now; those of a query only when the change is executed
            with thread_scratch(session.time_zone).for_statement(session.now_us()) as scratch:
                check_given(scratch, met, sql)
        conflict_key = meets if conflict and meets != found.key else None
        return defer_change(
            session,
            found,
            "insert",
            sql,
            reads,
            conflict=conflict,
            conflict_key=conflict_key,
            returning=returning,
            names=names,
        )
    fragment, returning = cut_returning(fragment, alias)
    sql = fragment.sql
    with thread_scratch(session.time_zone).for_statement(session.now_us()) as scratch:
        scratch.table(found)
        rows = scratch.arrow(f"{sql} RETURNING {returned(found.columns)}", shown=sql)
        rows = rows.cast(stored_schema(found.columns))
        if found.is_checked:
            if not overriding:
                refuse_given(found, rows)
            check_given_rows(scratch, found, rows)
        names, given = ([], None) if returning is None else answer(scratch, found, rows, returning)
    sent = session.send_change(rows_change(found, rows, returning, overriding), names)
    return sent if found.is_checked else Result.changed("INSERT", rows.num_rows, names, given)


def _with_columns(
    session: SqlSession, fragment: SqlFragment, at: int, found: SqlObject, *, always: bool = False
) -> SqlFragment:
    """Name the first columns where the rows have fewer than the table: the others get their defaults."""
    if fragment.word(at) == "AS":
        at += 2
    word = fragment.word(at)
    if word == "VALUES" and fragment.word(at + 1) == "(":
        given = len(fragment.bracket(at + 1)[0].split())
    elif word in ("SELECT", "WITH", "TABLE", "FROM") or (
        word == "(" and fragment.word(at + 1) in ("SELECT", "WITH", "VALUES")
    ):
        ends = (fragment.find("ON", "CONFLICT", start=at), fragment.find("RETURNING", start=at))
        query = fragment.part(at, min(n for n in (*ends, len(fragment)) if n is not None))
        given = len(session.catalog.binder.columns(query.sql))
    else:
        return fragment
    names = [c.name for c in found.columns if c.generated is None]
    if given > len(names) or (given == len(names) and not always):
        return fragment
    place = fragment.tokens[at].start
    return fragment.rewritten([(place, place, f"({', '.join(map(quoted, names[:given]))}) ")])


def _cut_overriding(fragment: SqlFragment) -> tuple[SqlFragment, bool]:
    """Cut out OVERRIDING SYSTEM VALUE, which DuckDB does not know."""
    at = fragment.find("OVERRIDING")
    if at is None:
        return fragment, False
    if not fragment.has(at, "OVERRIDING", "SYSTEM", "VALUE"):
        fragment.fail("only OVERRIDING SYSTEM VALUE is supported", at, "leave out the column")
    start, end = fragment.tokens[at].start, fragment.tokens[at + 2].end + 1
    return fragment.rewritten([(start, end, "")]), True
