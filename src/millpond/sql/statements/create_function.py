"""CREATE FUNCTION: an expression or a query under a name, with parameters.

    CREATE FUNCTION f(a BIGINT, b TEXT DEFAULT 'x') RETURNS TEXT LANGUAGE SQL AS 'SELECT …' | RETURN …
    CREATE FUNCTION f(a BIGINT) RETURNS TABLE (x INT, y TEXT) LANGUAGE SQL AS $$ SELECT … $$
    CREATE MACRO f(a, b := 1) AS … | AS TABLE SELECT …

Objects created with a function keep its definition of that time; OR REPLACE affects only
objects created afterwards.  Python functions are registered with `pond.function`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import TokenType

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.catalog import Catalog, table_names
from millpond.sql.binding.function_body import built_in, functions_in, read_query, read_scalar
from millpond.sql.binding.functions import (
    CALLS,
    COLUMNS,
    KIND,
    RETURNS,
    SCALAR,
    STRICT,
    TABLE,
    Options,
    inlined,
)
from millpond.sql.binding.types import quoted
from millpond.sql.dialects.library import is_public
from millpond.sql.dialects.postgres.casts import CALLED_TYPES
from millpond.sql.result import Result
from millpond.sql.text.duckdb_text import readable_expression, readable_text
from millpond.sql.text.parameters import marks
from millpond.sql.text.parse import SqlFragment, Words, closest_name, tokens_of
from millpond.sql.text.type_names import type_of

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_IGNORED = {"IMMUTABLE": 0, "STABLE": 0, "VOLATILE": 0, "LEAKPROOF": 0, "PARALLEL": 1, "COST": 1, "ROWS": 1}
_CLAUSES = (*_IGNORED, "RETURNS", "LANGUAGE", "STRICT", "CALLED", "AS", "RETURN", "NOT", "SECURITY", "SET")
_TEXTS = (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING)


@dataclass
class _Read:
    """The clauses of a CREATE FUNCTION."""

    name: str
    columns: tuple[SqlColumn, ...]
    returns: str | None = None
    rows: tuple[tuple[str, str], ...] | None = None  # RETURNS TABLE
    table: bool = False  # AS TABLE
    strict: bool = False
    language: str | None = None
    body: str | None = None
    place: int = 0
    more: dict[str, str] = field(default_factory=dict)


def run(replaces: bool) -> Callable[[SqlSession, Words], Result]:
    def called(session: SqlSession, words: Words) -> Result:
        exists = words.if_not_exists()
        found = _read(words)
        old = session.catalog.find(found.name)
        if old is not None and exists:
            return Result.said(f"CREATE_FUNCTION {found.name}: there already")
        check_name(session.catalog, found.name, replaces)

        def edit(builder: Builder) -> None:
            made = _made(session.catalog, found, words.fragment.sql)
            builder.plan = builder.plan.with_object(made)

        session.define(edit)
        return Result.said("CREATE_FUNCTION")

    return called


def check_name(catalog: Catalog, name: str, replaces: bool) -> None:
    """Refuse a name that already means something else, to the pond or to translated texts."""
    old = catalog.find(name)
    if old is not None and old.kind == "function" and replaces:
        return
    if old is not None and old.kind == "function":
        raise InvalidError(
            f"there is a function named {old.name!r} already", hint="say OR REPLACE, or IF NOT EXISTS"
        )
    catalog.free(name)
    lower = name.lower()
    if lower in built_in() or lower in CALLED_TYPES or is_public("__pg", lower):
        raise InvalidError(f"{name}() is built in, and stays what it is", hint="choose another name")


# -- reading ---------------------------------------------------------------------------------


def _read(words: Words) -> _Read:
    name = words.name("name of the function")
    fragment = words.fragment
    inner, words.at = fragment.bracket(words.at)
    typed = fragment.find("RETURNS", start=words.at) is not None
    found = _Read(name, _parameters(inner, typed=typed))
    _refuse_language(name, words.rest)
    while not words.over:
        _clause(words, found)
    if found.body is None:
        words.fail("the body of the function is missing", "AS 'SELECT …', AS $$ SELECT … $$ or RETURN …")
    return found


def _refuse_language(name: str, clauses: SqlFragment) -> None:
    """Refuse another language before its body is read."""
    at = clauses.find("LANGUAGE")
    language = "sql" if at is None or at + 1 >= len(clauses) else str(clauses.tokens[at + 1].text).lower()
    if language == "sql":
        return
    raise InvalidError(
        f"functions in {language} cannot be created here",
        hint=f'LANGUAGE SQL; for Python register it with pond.function("{name}", function)',
    )


def _parameters(inner: SqlFragment, what: str = "parameter", typed: bool = False) -> tuple[SqlColumn, ...]:
    """The parameters in brackets; those of a `typed` function may have no name."""
    found: list[SqlColumn] = []
    for part in inner.split(types=True) if inner.tokens else []:
        words = Words(part)
        words.take("IN")
        if part.word(words.at) in ("OUT", "INOUT", "VARIADIC"):
            words.fail(f"{part.word(words.at)} is not supported", "RETURNS TABLE (…) gives several columns")
        unnamed = typed and _is_type(part.part(words.at))
        name = f"${len(found) + 1}" if unnamed else words.name(f"name of a {what}")
        ends = (n for n in part.outside(words.at, types=True) if part.word(n) in ("DEFAULT", "=", ":="))
        end = next(ends, len(part))
        kind = type_of(part.part(words.at, end)) if end > words.at else ""
        default = None
        if end < len(part):
            default = readable_expression(part.part(end + 1).sql, part.dialect)
        elif any(c.default is not None for c in found):
            part.fail(f"parameter {name!r} needs a default, since one before it has one")
        if any(c.name.lower() == name.lower() for c in found):
            part.fail(f"{what} {name!r} is there twice")
        found.append(SqlColumn(name, kind, default))
    return tuple(found)


def _is_type(part: SqlFragment) -> bool:
    """Is a parameter only a type, so that the body calls it by its place: `f(int, double precision)`?"""
    try:
        type_of(part)
    except InvalidError:
        return False
    return True


def _clause(words: Words, found: _Read) -> None:
    fragment, at = words.fragment, words.at
    word = fragment.word(at)
    if words.take("RETURNS", "NULL", "ON", "NULL", "INPUT") or words.take("STRICT"):
        found.strict = True
    elif words.take("RETURNS", "TABLE"):
        inner, words.at = fragment.bracket(words.at)
        found.rows = tuple((c.name, c.type) for c in _parameters(inner, "column"))
        if not found.rows or any(not kind for _, kind in found.rows):
            inner.fail("RETURNS TABLE lists columns and their types", 0, "RETURNS TABLE (x INT, y TEXT)")
    elif words.take("RETURNS"):
        many = words.take("SETOF")
        end = next((n for n in range(words.at, len(fragment)) if fragment.word(n) in _CLAUSES), len(fragment))
        if end == words.at:
            words.fail("the type that the function returns should stand here")
        kind = type_of(fragment.part(words.at, end))
        words.at = end
        if many:
            found.rows = ((found.name, kind),)
        else:
            found.returns = kind
    elif words.take("LANGUAGE"):
        found.language = words.text().lower()
    elif words.take("CALLED", "ON", "NULL", "INPUT") or words.take("NOT", "LEAKPROOF"):
        return
    elif word in _IGNORED:
        words.at += 1 + _IGNORED[word]
    elif words.take("RETURN"):
        found.body, words.at = _text(words.rest), len(fragment)
    elif words.take("AS"):
        _as(words, found)
    else:
        words.fail("this is not supported in a function", closest_name(word or "?", _CLAUSES))


def _as(words: Words, found: _Read) -> None:
    fragment = words.fragment
    said = found.returns or found.rows or found.language or not fragment.has(1, "MACRO")
    token = None if words.over else fragment.tokens[words.at]
    quoted_one = token is not None and token.token_type in _TEXTS
    if quoted_one and (said or words.at + 1 < len(fragment)):
        assert token is not None
        body = _with_names(str(token.text), found.columns)
        found.body = _text_of(body, fragment.dialect)
        words.at += 1
        return
    found.table = words.take("TABLE")
    found.body, words.at = _text(words.rest), len(fragment)


def _with_names(body: str, columns: tuple[SqlColumn, ...]) -> str:
    """A body with the names of its parameters instead of their places, `$1`."""
    fragment = SqlFragment(body, tokens_of(body, "postgres"))
    places = [mark for mark in marks(fragment.tokens, None) if isinstance(mark[2], int)]
    text, at = "", 0
    for start, end, which in places:
        if body[start] == "$" and isinstance(which, int):
            if not 1 <= which <= len(columns):
                raise InvalidError(f"there is no parameter ${which}")
            text, at = text + body[at:start] + quoted(columns[which - 1].name), end
    return text + body[at:]


def _text(fragment: SqlFragment) -> str:
    if not fragment.tokens:
        fragment.fail("the body of the function should stand here", len(fragment))
    return _text_of(fragment.sql, fragment.dialect)


def _text_of(text: str, dialect: str) -> str:
    """Return a query or an expression in a form that DuckDB can parse."""
    bare = text.strip().rstrip(";").strip()
    try:
        return readable_text(bare, dialect)
    except InvalidError as error:
        try:
            return readable_expression(bare, dialect)
        except InvalidError:
            raise error from None


# -- making -----------------------------------------------------------------------------------


def _made(catalog: Catalog, found: _Read, said: str) -> SqlObject:
    assert found.body is not None
    if found.name.lower() in functions_in(found.body):
        raise InvalidError(
            f"{found.name}() calls itself",
            hint="a function cannot be recursive; WITH RECURSIVE in a view can",
        )
    inner = inlined(found.body, catalog.objects)
    options: Options = {KIND: SCALAR, "language": "sql"}
    if inner.calls:
        options[CALLS] = inner.calls
    if found.rows is not None or found.table:
        options |= {KIND: TABLE, "row": True}
        text = read_query(inner.sql)
        options[COLUMNS] = found.rows or _described(catalog, found, text)
    else:
        body = read_scalar(found.name, found.columns, inner.sql)
        text = f"CAST({body.text} AS {found.returns})" if found.returns else body.text
        options |= {RETURNS: found.returns or "", "row": body.row}
    if found.strict:
        options[STRICT] = True
    named = {n.lower() for n in table_names(text if options[KIND] == TABLE else f"select {text}")}
    uses = tuple(o.name for o in catalog.objects.values() if o.name.lower() in named)
    made = SqlObject(
        "function",
        found.name,
        found.columns,
        text=text,
        uses=(*uses, *inner.uses),
        options=options,
        said=said,
    )
    _check(catalog, made, found)
    return made


def _described(catalog: Catalog, found: _Read, text: str) -> tuple[tuple[str, str], ...]:
    """Return the columns of AS TABLE, which are not declared."""
    given, names = ", ".join(_nothing(found.columns)), ", ".join(quoted(c.name) for c in found.columns)
    beside = f"(SELECT {given}) AS {quoted(found.name)}({names}), LATERAL " if given else ""
    sql = f"SELECT q.* FROM {beside}(\n{text}\n) AS q"
    _bind(catalog, sql)
    return tuple(catalog.binder.describe(sql))


def _check(catalog: Catalog, made: SqlObject, found: _Read) -> None:
    """Bind a call with NULL arguments, so that errors in the body are reported now."""
    if found.rows is not None:
        listed = _described(catalog, found, made.text)
        if len(listed) != len(found.rows):
            raise InvalidError(
                f"the query of {made.name}() gives {len(listed)} columns, RETURNS TABLE lists "
                f"{len(found.rows)}",
                detail=f"it gives {', '.join(n for n, _ in listed)}",
            )
    call = f"{quoted(made.name)}({', '.join(_nothing(made.columns))})"
    probe = f"select * from {call}" if made.options[KIND] == TABLE else f"select {call}"
    _bind(catalog, inlined(probe, {**catalog.objects, made.name: made}).sql)
    for column in made.columns:
        if column.default is not None:
            _bind(catalog, f"select CAST(({column.default}) AS {column.type or 'VARCHAR'})")


def _nothing(columns: tuple[SqlColumn, ...]) -> list[str]:
    return [f"CAST(NULL AS {c.type})" if c.type else "NULL" for c in columns]


def _bind(catalog: Catalog, sql: str) -> None:
    catalog.binder.run(f"prepare checked as {sql}", sql, len("prepare checked as "))
    catalog.binder.run("deallocate checked", sql)
