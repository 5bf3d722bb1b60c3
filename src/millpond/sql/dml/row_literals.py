"""PostgreSQL's literals in INSERT … VALUES and INSERT … SELECT that DuckDB does not read by itself.

'{1,2}' is an array and 'January 8, 1999' a date, if the column is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot import Token, TokenType

from millpond.plan.objects import SqlColumn
from millpond.sql.dialects.postgres.time_casts import is_plain, reader_of
from millpond.sql.dialects.postgres.translate import translated_expression
from millpond.sql.text.parse import SqlFragment

_BYTES, _INTEGERS = "BLOB", ("SMALLINT", "INTEGER", "BIGINT")
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")
_PRECISE = ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
_AFTER_LIST = (
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "RETURNING",
    ";",
)


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


def with_read_values(fragment: SqlFragment, columns: Sequence[SqlColumn]) -> SqlFragment:
    """The same INSERT with dates, times, bytes and integers as PostgreSQL reads them.

    Law: only a literal that is all of a value of such a column changes, and only if DuckDB needs it.
    """
    if not any(reader_of(c.type.lower()) or c.type in (_BYTES, *_INTEGERS, *_PRECISE) for c in columns):
        return fragment
    literals = [t.token_type is TokenType.STRING for t in fragment.tokens]
    edits = []
    for token, kind in _values(fragment, columns, literals):
        said = fragment.text[token.start : token.end + 1]
        if kind in _INTEGERS and not _WHOLE.fullmatch(token.text):
            edits.append((token.start, token.end + 1, translated_expression(f"CAST({said} AS {kind})")))
        elif kind == _BYTES and "\\" in token.text:
            edits.append((token.start, token.end + 1, f"__pg.main.bytea_in({said})"))
        elif kind in _PRECISE and not is_plain(token.text, "timestamp"):
            edits.append((token.start, token.end + 1, translated_expression(f"CAST({said} AS TIMESTAMP)")))
        elif reader_of(kind.lower()) and not is_plain(token.text, kind.lower()):
            edits.append((token.start, token.end + 1, translated_expression(f"CAST({said} AS {kind})")))
    return fragment.rewritten(edits) if edits else fragment


def _values(
    fragment: SqlFragment, columns: Sequence[SqlColumn], literals: Sequence[bool]
) -> Iterator[tuple[Token, str]]:
    """The literals that are all of a value, and the types of their columns."""
    start = fragment.find("VALUES")
    if not any(literals):
        return
    kinds = {c.name.lower(): c.type for c in columns}
    if start is None:
        yield from _selected(fragment, columns, literals)
        return
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


def _selected(
    fragment: SqlFragment, columns: Sequence[SqlColumn], literals: Sequence[bool]
) -> Iterator[tuple[Token, str]]:
    """The literals that are all of a column of the query; in a UNION they are texts."""
    starts = [n for n in fragment.outside() if fragment.word(n) == "SELECT"]
    if len(starts) != 1:
        return
    kinds = {c.name.lower(): c.type for c in columns}
    given = _given(fragment, starts[0]) or [c.name for c in columns if c.generated is None]
    for start in starts:
        end = next((n for n in fragment.outside(start) if fragment.word(n) in _AFTER_LIST), len(fragment))
        at = start + 1
        for name, item in zip(given, fragment.part(start + 1, end).split(), strict=False):
            alone = len(item) == 1 or item.has(1, "AS") or len(item) == 2
            if any(fragment.word(n) == "*" for n in range(at, at + len(item))):
                break
            if alone and literals[at]:
                yield fragment.tokens[at], kinds.get(name.lower(), "")
            at += len(item) + 1


def _is_alone(fragment: SqlFragment, n: int) -> bool:
    return fragment.word(n - 1) in ("(", ",") and fragment.word(n + 1) in (")", ",")


def _given(fragment: SqlFragment, values: int) -> list[str]:
    """The columns that INSERT lists before VALUES."""
    if fragment.word(values - 1) != ")":
        return []
    opened = max(n for n in range(values) if fragment.word(n) == "(")
    return [t.text for t in fragment.tokens[opened + 1 : values - 1] if t.token_type is not TokenType.COMMA]
