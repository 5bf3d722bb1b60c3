"""Translates the queries and expressions of INSERT, UPDATE and DELETE, which DuckDB does not show as a tree.

Law: only they are replaced; the words around them stay as they were written.  Rows of plain literals mean the
same in every dialect, and are not looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest

from sqlglot import Token, TokenType

from millpond.sql.dialects.postgres.time_casts import may_be_time
from millpond.sql.text.parse import SqlFragment, tokens_of
from millpond.sql.text.with_changes import behind_columns

Edit = tuple[int, int, str]
Translate = Callable[[str], str]

_ONE = "SELECT 1 AS n FROM "  # makes a query of relations, and nothing in it is rewritten
_LITERALS = frozenset(
    TokenType[name]
    for name in (
        *("STRING", "NUMBER", "COMMA", "L_PAREN", "R_PAREN", "DASH"),
        *("NULL", "TRUE", "FALSE", "DEFAULT", "VALUES"),
    )
)


def translated_change(sql: str, query: Translate, expression: Translate, condition: Translate) -> str:
    """The same change in DuckDB's SQL; any other statement as it is."""
    fragment = SqlFragment(sql, tokens_of(sql, "duckdb"), "duckdb")
    read = {"INSERT": _insert, "UPDATE": _update, "DELETE": _delete, "MERGE": _merge}.get(fragment.word(0))
    if read is None:
        return sql
    text, at = "", 0
    for start, end, fresh in read(fragment, query, expression, condition):
        if fresh != sql[start:end]:
            text, at = text + sql[at:start] + fresh, end
    return text + sql[at:]


def _edit(part: SqlFragment, translate: Translate, before: str = "", skipped: int = 0) -> Iterator[Edit]:
    if part.tokens:
        yield part.start, part.tokens[-1].end + 1, translate(before + part.sql)[skipped:]


def _insert(
    fragment: SqlFragment, query: Translate, expression: Translate, condition: Translate
) -> Iterator[Edit]:
    at = 2  # INSERT INTO
    while at < len(fragment) and fragment.word(at + 1) == ".":
        at += 2
    at += 1
    at = behind_columns(fragment, at)
    conflict = fragment.find("ON", "CONFLICT", start=at)
    returning = fragment.find("RETURNING", start=at)
    end = min(n for n in (conflict, returning, len(fragment)) if n is not None)
    given = fragment.part(at, end)
    if not given.has(0, "DEFAULT", "VALUES") and not _is_literal(given):
        yield from _edit(given, lambda text: _as_values(query(text)))
    if conflict is not None:
        end = len(fragment) if returning is None else returning
        place = fragment.find("SET", start=conflict)
        if place is not None:
            where = fragment.find("WHERE", start=place)
            yield from _assignments(
                fragment.part(place + 1, end if where is None else where), query, expression
            )
            if where is not None:
                yield from _edit(fragment.part(where + 1, end), condition)
    yield from _returning(fragment, returning, query)


def _as_values(sql: str) -> str:
    """VALUES as it was written; DuckDB writes a query of it, in which DEFAULT has no meaning."""
    before, after = "SELECT * FROM (VALUES ", ") AS valueslist"
    if sql.startswith(before) and sql.endswith(after):
        return sql[len("SELECT * FROM (") : -len(after)]
    return sql


def _is_literal(given: SqlFragment) -> bool:
    return given.has(0, "VALUES") and all(t.token_type in _LITERALS for t in given.tokens)


def _update(
    fragment: SqlFragment, query: Translate, expression: Translate, condition: Translate
) -> Iterator[Edit]:
    place = fragment.find("SET")
    if place is None:
        return
    marks = [fragment.find(word, start=place) for word in ("FROM", "WHERE", "RETURNING")]
    source, where, returning = marks
    ends = [*(n for n in marks if n is not None), len(fragment)]
    yield from _assignments(fragment.part(place + 1, min(ends)), query, expression)
    if source is not None:
        end = min(n for n in ends if n > source)
        yield from _relations(fragment.part(source + 1, end), query)
    if where is not None:
        end = min(n for n in ends if n > where)
        yield from _edit(fragment.part(where + 1, end), condition)
    yield from _returning(fragment, returning, query)


def _delete(
    fragment: SqlFragment, query: Translate, expression: Translate, condition: Translate
) -> Iterator[Edit]:
    marks = [fragment.find(word) for word in ("USING", "WHERE", "RETURNING")]
    source, where, returning = marks
    ends = [*(n for n in marks if n is not None), len(fragment)]
    if source is not None:
        end = min(n for n in ends if n > source)
        yield from _relations(fragment.part(source + 1, end), query)
    if where is not None:
        end = min(n for n in ends if n > where)
        yield from _edit(fragment.part(where + 1, end), condition)
    yield from _returning(fragment, returning, query)


def _merge(
    fragment: SqlFragment, query: Translate, expression: Translate, condition: Translate
) -> Iterator[Edit]:
    using, on = fragment.find("USING"), fragment.find("ON")
    whens = _whens(fragment)
    if using is None or on is None or not whens:
        return
    returning = fragment.find("RETURNING", start=whens[-1])
    yield from _relations(fragment.part(using + 1, on), query)
    yield from _edit(fragment.part(on + 1, whens[0]), condition)
    ends = [*whens[1:], len(fragment) if returning is None else returning]
    for start, end in zip(whens, ends, strict=True):
        clause = fragment.part(start, end)
        then = max(n for n in clause.outside() if clause.word(n) == "THEN")
        also = clause.find("AND")
        if also is not None and also < then:
            yield from _edit(clause.part(also + 1, then), condition)
        action = clause.part(then + 1)
        if action.has(0, "UPDATE", "SET") and not action.has(2, "*"):
            yield from _assignments(action.part(2), query, expression)
        values = action.find("VALUES")
        if action.has(0, "INSERT") and values is not None and action.has(values + 1, "("):
            given, _ = action.bracket(values + 1)
            for each in given.split():
                if not each.has(0, "DEFAULT"):
                    yield from _edit(each, expression)
    yield from _returning(fragment, returning, query)


def _whens(fragment: SqlFragment) -> list[int]:
    """The places of WHEN that are not those of a CASE."""
    found, cases = [], 0
    for place in fragment.outside():
        word = fragment.word(place)
        cases += (word == "CASE") - (word == "END")
        if word == "WHEN" and not cases:
            found.append(place)
    return found


def _relations(part: SqlFragment, query: Translate) -> Iterator[Edit]:
    if any(word in ("SELECT", "VALUES", "ON") or word == "(" for word in part.words):
        yield from _edit(part, query, _ONE, len(_ONE))


def _assignments(part: SqlFragment, query: Translate, expression: Translate) -> Iterator[Edit]:
    """`a = x`, or `(a, b) = (x, y)`, or `(a, b) = (SELECT …)`."""
    for one in part.split():
        equals = one.find("=")
        if equals is None:
            continue
        value = one.part(equals + 1)
        if value.has(0, "DEFAULT"):
            continue
        if one.has(0, "(") and value.has(0, "("):
            value, _ = value.bracket(0)
            if value.has(0, "SELECT") or value.has(0, "WITH"):
                names, _ = one.bracket(0)
                yield one.start, one.tokens[-1].end + 1, _from_query(names.split(), query(value.sql))
                continue
            columns, _ = one.bracket(0)
            for column, each in zip_longest(columns.split(), value.split()):
                if each is not None:
                    yield from _assigned(column, each, expression)
        else:
            yield from _assigned(one.part(0, equals), value, expression)


def _assigned(column: SqlFragment | None, value: SqlFragment, expression: Translate) -> Iterator[Edit]:
    """A value for a column; a literal such as '{1,2}' or 'Jan 8 1999' is read by the type of the column."""
    token = value.tokens[0] if len(value) == 1 else None
    reader = None if column is None or token is None else _reader(token)
    if column is not None and token is not None and reader is not None:
        yield value.start, token.end + 1, f"__pg.main.{reader}({value.sql}, {column.sql})"
    else:
        yield from _edit(value, expression)


def _reader(token: Token) -> str | None:
    """The macro that reads a literal by what stands beside it; None if every type reads it as DuckDB does."""
    if token.token_type is not TokenType.STRING:
        return None
    text = token.text.strip()
    if text.startswith("{") and text.endswith("}"):
        return "array_beside"
    return "value_beside" if may_be_time(text) or text.startswith("\\x") else None


def _from_query(names: list[SqlFragment], query: str) -> str:
    """An assignment of each column from its own copy of a query of one row, which DuckDB needs."""
    called = ", ".join(f"c{n}" for n in range(len(names)))
    each = (f"{name.sql} = (SELECT c{n} FROM ({query}) AS q({called}))" for n, name in enumerate(names))
    return ", ".join(each)


def _returning(fragment: SqlFragment, place: int | None, query: Translate) -> Iterator[Edit]:
    if place is not None:
        yield from _edit(fragment.part(place + 1), query, "SELECT ", len("SELECT "))
