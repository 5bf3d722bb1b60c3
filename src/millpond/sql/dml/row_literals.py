"""PostgreSQL's literals among the rows of INSERT … VALUES that DuckDB does not read by itself: '{1,2}' for a
column that is an array, 'January 8, 1999' for a date."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import Token, TokenType

from millpond.plan.objects import SqlColumn
from millpond.sql.dialects.postgres.time_casts import is_plain, reader_of
from millpond.sql.dialects.postgres.translate import translated_expression
from millpond.sql.text.parse import SqlFragment


def with_arrays(fragment: SqlFragment, columns: Sequence[SqlColumn]) -> SqlFragment:
    """The same INSERT with each such literal as a call that reads it.

    Law: only a literal that is all of a value of an array's column changes.
    """
    if not any(column.type.endswith("]") for column in columns):
        return fragment
    literals = [t.token_type is TokenType.STRING and t.text.lstrip().startswith("{") for t in fragment.tokens]
    edits = []
    for token, kind in _values(fragment, columns, literals):
        if kind.endswith("]"):
            said = fragment.text[token.start : token.end + 1]
            edits.append((token.start, token.end + 1, f"CAST(__pg.main.text_array_in({said}) AS {kind})"))
    return fragment.rewritten(edits) if edits else fragment


def with_times(fragment: SqlFragment, columns: Sequence[SqlColumn]) -> SqlFragment:
    """The same INSERT with dates and times as DuckDB reads them.

    Law: only a literal that is all of a value of such a column changes, and only if DuckDB needs it.
    """
    if not any(reader_of(column.type.lower()) for column in columns):
        return fragment
    literals = [t.token_type is TokenType.STRING for t in fragment.tokens]
    edits = []
    for token, kind in _values(fragment, columns, literals):
        if reader_of(kind.lower()) and not is_plain(token.text, kind.lower()):
            said = fragment.text[token.start : token.end + 1]
            edits.append((token.start, token.end + 1, translated_expression(f"CAST({said} AS {kind})")))
    return fragment.rewritten(edits) if edits else fragment


def _values(
    fragment: SqlFragment, columns: Sequence[SqlColumn], literals: Sequence[bool]
) -> Iterator[tuple[Token, str]]:
    """The literals that are all of a value, and the types of their columns."""
    start = fragment.find("VALUES")
    if start is None or not any(literals):
        return
    kinds = {c.name.lower(): c.type for c in columns}
    given = _given(fragment, start) or [c.name for c in columns if c.generated is None]
    depth, place = 0, 0
    for n in range(start + 1, len(fragment)):
        word = fragment.word(n)
        if depth == 0 and word not in ("(", ","):
            break
        if literals[n] and _is_alone(fragment, n) and depth == 1 and place < len(given):
            yield fragment.tokens[n], kinds.get(given[place].lower(), "")
        if word in ("(", "["):
            depth, place = depth + 1, 0 if depth == 0 else place
        elif word in (")", "]"):
            depth -= 1
        elif word == "," and depth == 1:
            place += 1


def _is_alone(fragment: SqlFragment, n: int) -> bool:
    return fragment.word(n - 1) in ("(", ",") and fragment.word(n + 1) in (")", ",")


def _given(fragment: SqlFragment, values: int) -> list[str]:
    """The columns that INSERT lists before VALUES."""
    if fragment.word(values - 1) != ")":
        return []
    opened = max(n for n in range(values) if fragment.word(n) == "(")
    return [t.text for t in fragment.tokens[opened + 1 : values - 1] if t.token_type is not TokenType.COMMA]
