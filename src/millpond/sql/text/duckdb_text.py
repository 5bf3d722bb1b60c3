"""The text of a query, a change or an expression as DuckDB can parse it.

Law: a text that DuckDB can parse and that means the same there is passed on unchanged, so that messages point
into what the user wrote; anything else, and every other dialect, is translated.
"""

from __future__ import annotations

import itertools

import duckdb
import sqlglot
from sqlglot import ErrorLevel, TokenType
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.postgres import Postgres

from millpond.errors import InvalidError
from millpond.kernels.sql_pictures import picture
from millpond.sql.binding.bind import as_user_error
from millpond.sql.dialects.postgres.syntax import rewritten_syntax
from millpond.sql.dialects.postgres.translate import translated as from_postgres
from millpond.sql.dialects.postgres.translate import translated_expression as expression_from_postgres
from millpond.sql.dialects.spark.translate import translated as from_spark
from millpond.sql.dialects.spark.translate import translated_expression as expression_from_spark
from millpond.sql.refusal import pointing
from millpond.sql.text.angle_types import without_angles
from millpond.sql.text.dialects import named_values, translated
from millpond.sql.text.duckdb_parser import syntax_error
from millpond.sql.text.emit_clause import refuse_emission
from millpond.sql.text.memoized_text import of_short_texts
from millpond.sql.text.parse import LAX_SPARK, OWN, SPARK, SqlFragment, tokens_of
from millpond.sql.text.time_windows import as_plain_sql, calls_as_names
from millpond.sql.text.type_names import type_of
from millpond.sql.text.with_ties import without_ties


def readable(fragment: SqlFragment) -> str:
    """Return the text of a query or change as DuckDB can parse it, unchanged where possible."""
    return readable_text(fragment.sql, fragment.dialect)


@of_short_texts
def readable_text(sql: str, dialect: str) -> str:
    if dialect == "postgres":
        sql = rewritten_syntax(sql)
    try:
        found = _readable_text(sql, dialect)
    except InvalidError:
        _refuse_as_of(sql, dialect)
        _refuse_emit(sql, dialect)
        _refuse_other_clauses(sql, dialect)
        raise
    return from_postgres(found) if dialect == "postgres" else found


def parsable_text(sql: str) -> str:
    """Return a query of the default dialect as DuckDB can parse it, before it is translated."""
    return _readable_text(rewritten_syntax(sql), "postgres")


def readable_expression(sql: str, dialect: str) -> str:
    """Return an expression as DuckDB can parse it: a default, a condition, the body of a function."""
    if dialect in (SPARK, LAX_SPARK):
        return expression_from_spark(sql, ansi=dialect == SPARK)
    if dialect == "postgres":
        sql = rewritten_syntax(sql)
    found = _readable_text(f"select {sql}", dialect)[len("select ") :]
    return expression_from_postgres(found) if dialect == "postgres" else found


def _refuse_as_of(sql: str, dialect: str) -> None:
    """Refuse AS OF: only SELECT reads older epochs, and it removes its AS OF clauses before this."""
    fragment = SqlFragment(sql, tokens_of(sql, dialect), dialect)
    for place in range(len(fragment)):
        for word in ("EPOCH", "SAVEPOINT"):
            if fragment.has(place, "AS", "OF", word):
                start, end = fragment.tokens[place].start, fragment.tokens[place + 2].end + 1
                at = (len(sql[:start].encode()), end - start)
                hint = f"SELECT … AS OF {word} reads an older epoch; pond.fork(path, epoch=…) starts from one"
                raise pointing(
                    f"AS OF {word} is only for SELECT: views and changes read the newest rows", sql, at, hint
                )


_OTHER_CLAUSES = {  # of queries of other systems, in what cannot be read
    (
        "MUTUALLY",
        "RECURSIVE",
    ): "WITH RECURSIVE name AS (… UNION …); of relations that need each other make one, "
    "with a column that says which it is",
    ("SESSION", "WITH", "GAP"): "write SESSION(rows, time, INTERVAL '5 minutes', key) in FROM, and GROUP BY",
    ("AS", "CHANGELOG", "FROM"): "SUBSCRIBE name shows the changes of a table or view",
    ("LIMIT", "INPUT", "GROUP", "SIZE"): "leave it out: no size must be known",
    ("GROUP", "SIZE"): "leave it out: no size must be known",
    ("MATCH_RECOGNIZE",): "compare rows with lag() and lead(), or process them in Python with Stream.process",
}


def _refuse_other_clauses(sql: str, dialect: str) -> None:
    fragment = SqlFragment(sql, tokens_of(sql, dialect), dialect)
    for place in range(len(fragment)):
        for words, hint in _OTHER_CLAUSES.items():
            if fragment.has(place, *words):
                fragment.fail(f"{' '.join(words)} is not supported", place, hint)


def _refuse_emit(sql: str, dialect: str) -> None:
    """Refuse an EMIT clause behind a query that has no fault but that."""

    fragment = SqlFragment(sql, tokens_of(sql, dialect), dialect)
    for place in fragment.outside(1):
        if fragment.word(place) == "EMIT":
            try:
                _readable_text(fragment.part(0, place).sql, dialect)
            except InvalidError:
                continue
            refuse_emission(fragment, place)


def _readable_text(sql: str, dialect: str) -> str:

    failed: duckdb.Error | None = None
    parsed = sql = named_values(sql, dialect)
    if dialect in OWN:
        failed = syntax_error(sql)
        if failed is None:
            return sql
        named = _with_quoted_names(sql, dialect)
        if named != sql and syntax_error(named) is None:
            return named
        sql = without_angles(sql, dialect, type_of)
        if sql != parsed and (failed := syntax_error(sql)) is None:
            return sql
        plain = as_plain_sql(sql)  # a window's time column may have a name that DuckDB reserves, such as `at`
        if plain != sql:
            if syntax_error(plain) is None:
                return plain
            failed = syntax_error(calls_as_names(sql)) or failed  # the position in what the user wrote
        if _lacks_a_value(sql, dialect):
            raise as_user_error(failed, sql)
        parsed = plain  # sqlglot cannot read SESSION(…) in FROM
    else:
        without_angles(sql, dialect, type_of)  # refuses types that sqlglot would misread
    try:
        if dialect in (SPARK, LAX_SPARK):
            made = from_spark(sql, ansi=dialect == SPARK)
        else:
            made = _from_own(parsed, dialect) if dialect in OWN else translated(sql, dialect)
    except InvalidError:
        raise
    except Exception as error:  # on invalid text sqlglot can also fail with unexpected exceptions
        if failed is not None:
            raise as_user_error(failed, sql) from error
        raise InvalidError("this is not SQL", detail=_position(error, sql)) from error
    if len(made) != 1:
        raise InvalidError("one statement is needed", detail=f"there are {len(made)}")
    again = syntax_error(made[0])
    if again is not None:
        raise as_user_error(failed or again, sql if failed else made[0])
    return str(made[0])


def _with_quoted_names(sql: str, dialect: str) -> str:
    """Put names in quotes that DuckDB reserves, and PostgreSQL does not.

    >>> print(_with_quoted_names("select at, at at time zone 'UTC' from t", "postgres"))
    select "at", "at" at time zone 'UTC' from t
    """
    fragment = SqlFragment(sql, tokens_of(sql, dialect), dialect)
    edits = []
    for n, token in enumerate(fragment.tokens):
        is_operator = fragment.has(n + 1, "TIME", "ZONE")
        if fragment.word(n) == "AT" and not is_operator and fragment.word(n + 1) != "(":
            edits.append((token.start, token.end + 1, f'"{token.text.lower()}"'))
    return fragment.rewritten(edits).sql if edits else sql


def _lacks_a_value(sql: str, dialect: str) -> bool:
    """Is a value missing before a comma?  sqlglot would ignore the comma."""
    kinds = [t.token_type for t in tokens_of(sql, dialect)]
    before = (TokenType.COMMA, TokenType.L_PAREN)
    return any(a in before and b is TokenType.COMMA for a, b in itertools.pairwise(kinds))


class _Own(Postgres):
    """PostgreSQL's syntax with DuckDB's semantics."""

    NULL_ORDERING = "nulls_are_last"
    TYPED_DIVISION = False


class _OwnPostgres(_Own):
    """PostgreSQL's syntax and its order of NULLs."""

    NULL_ORDERING = "nulls_are_large"


class _DuckDBLarge(DuckDB):
    """DuckDB's syntax before the order of NULLs is translated."""

    NULL_ORDERING = "nulls_are_large"


def _from_own(sql: str, dialect: str) -> list[str]:
    read, write = (_OwnPostgres, _DuckDBLarge) if dialect == "postgres" else (_Own, DuckDB)
    trees = sqlglot.parse(sql, read=read)
    return [without_ties(tree).sql(write, unsupported_level=ErrorLevel.RAISE) for tree in trees if tree]


def _position(error: Exception, sql: str) -> str:
    for found in getattr(error, "errors", ()):
        line, column = found.get("line"), found.get("col")
        if line and column:
            lines = sql.splitlines() or [""]
            start = sum(len(row.encode()) + 1 for row in lines[: line - 1])
            mark = str(found.get("highlight") or "x")
            begin = start + len(lines[min(line, len(lines)) - 1][: column - len(mark)].encode())
            return f"{found.get('description', error)}, in the query\n" + picture(sql, (begin, len(mark)))
    return str(error).split("\n")[0]
