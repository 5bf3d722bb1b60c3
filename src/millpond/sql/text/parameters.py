"""Parameters: values passed beside a text, never as part of it.

Reads pass them to DuckDB.  In texts that are stored (a definition, or a change that is
executed later) they become typed literals, written only by `literal_of`.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
from sqlglot import Token, TokenType

from millpond.errors import InvalidError
from millpond.sql.binding.types import text_literal
from millpond.sql.text.duckdb_text import readable
from millpond.sql.text.parse import SqlFragment, tokens_of
from millpond.valid_text import require_texts

Params = Sequence[Any] | Mapping[str, Any] | None
Mark = tuple[int, int, int | str]  # start, end, and number or name


def marks(tokens: Sequence[Token], params: Params) -> list[Mark]:
    """Find parameters: `?`, `$1`, `$name`, `:name`; `?` are numbered from 1."""
    found: list[Mark] = []
    questions = 0
    for n, token in enumerate(tokens):
        after = tokens[n + 1] if n + 1 < len(tokens) else None
        if token.token_type is TokenType.PLACEHOLDER and token.text == "?":
            if _is_operator(tokens, n):
                continue
            questions += 1
            found.append((token.start, token.end + 1, questions))
        elif token.token_type is TokenType.PARAMETER and after is not None and after.start == token.end + 1:
            which = int(after.text) if after.text.isdecimal() else after.text
            found.append((token.start, after.end + 1, which))
        elif token.token_type is TokenType.COLON and after is not None and after.start == token.end + 1:
            found += [(token.start, after.end + 1, after.text)] if _has(params, after.text) else []
    return found


_OPERANDS = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.R_PAREN, TokenType.R_BRACKET,
             TokenType.JSONB, TokenType.PARAMETER)  # fmt: skip


def _is_operator(tokens: Sequence[Token], at: int) -> bool:
    """Is this `?` PostgreSQL's question whether a jsonb has a key: an operand before it, a text behind it?"""
    if not 0 < at < len(tokens) - 1:
        return False
    return tokens[at - 1].token_type in _OPERANDS and tokens[at + 1].token_type is TokenType.STRING


def _has(params: Params, name: str) -> bool:
    return isinstance(params, Mapping) and name in params


def with_literals(fragment: SqlFragment, params: Params) -> SqlFragment:
    """Replace every parameter with a literal."""
    found = marks(fragment.tokens, params)
    _check(found, params, fragment)
    if not found:
        return fragment
    return fragment.rewritten((start, end, literal_of(_value(params, which))) for start, end, which in found)


def for_duckdb(fragment: SqlFragment, params: Params) -> tuple[SqlFragment, list[Any] | dict[str, Any]]:
    """Rewrite parameters in DuckDB's syntax; also return the values of those that are used."""
    found = marks(fragment.tokens, params)
    _check(found, params, fragment)
    if not found:
        return fragment, []
    names = {which: f"p{which}" if isinstance(which, int) else which for _, _, which in found}
    made = fragment.rewritten((start, end, f"${names[which]}") for start, end, which in found)
    return made, {name: _value(params, which) for which, name in names.items()}


def canonical(fragment: SqlFragment, params: Params) -> SqlFragment:
    """Return a statement in DuckDB's SQL, with a literal for every parameter.

    It is translated before it has its values, so that a statement which runs often is translated once.
    """
    asked, values = for_duckdb(fragment, params)
    sql = readable(asked)
    return with_literals(SqlFragment(sql, tokens_of(sql, "duckdb"), "duckdb"), values or None)


def _check(found: Sequence[Mark], params: Params, fragment: SqlFragment) -> None:
    if isinstance(params, str | bytes) or (params is not None and not isinstance(params, Sequence | Mapping)):
        raise InvalidError("params are a list of values or a dict of them", detail=f"got {params!r}")
    for _, _, which in found:
        if isinstance(which, int):
            count = 0 if params is None or isinstance(params, Mapping) else len(params)
            if not 1 <= which <= count:
                raise InvalidError(
                    f"there is no value for parameter {which}",
                    detail=f"params has {count} of them",
                    hint="pass pond.sql(text, params=[…])",
                )
        elif not isinstance(params, Mapping) or which not in params:
            raise InvalidError(
                f"there is no value for parameter {which!r}", hint='pass pond.sql(text, params={"name": …})'
            )


def _value(params: Params, which: int | str) -> Any:
    assert params is not None
    found = params[str(which)] if isinstance(params, Mapping) else params[int(which) - 1]
    require_texts(found, f"parameter {which}")
    return found


def literal_of(value: Any) -> str:
    """Render any value as a SQL literal, safely quoted.

    >>> literal_of("it's"), literal_of([1, None]), literal_of(decimal.Decimal("1.50"))
    ("'it''s'", '[1, NULL]', "CAST('1.50' AS DECIMAL(3,2))")
    """
    if hasattr(value, "item") and type(value).__module__ == "numpy":
        value = value.item()
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value) if value >= 0 else f"({value})"
        case float():
            shown = repr(value) if math.isfinite(value) else str(value)
            return f"CAST('{shown}' AS DOUBLE)"
        case decimal.Decimal():
            return _decimal(value)
        case str():
            if "\0" in value:
                raise InvalidError("a text cannot hold the character NUL", detail=repr(value[:60]))
            return text_literal(value)
        case bytes() | bytearray() | memoryview():
            return f"from_hex('{bytes(value).hex()}')"
        case datetime.datetime():
            kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMP WITH TIME ZONE"
            return f"CAST('{value.isoformat(' ')}' AS {kind})"
        case datetime.date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case datetime.time():
            kind = "TIME" if value.tzinfo is None else "TIME WITH TIME ZONE"
            return f"CAST('{value.isoformat()}' AS {kind})"
        case datetime.timedelta():
            us = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
            return f"to_microseconds({us})"
        case uuid.UUID():
            return f"CAST('{value}' AS UUID)"
        case Mapping():
            return "{" + ", ".join(f"{text_literal(str(k))}: {literal_of(v)}" for k, v in value.items()) + "}"
        case duckdb.Value():
            return f"CAST({literal_of(value.object)} AS {value.type})"
        case list() | tuple():
            return "[" + ", ".join(literal_of(v) for v in value) + "]"
    raise InvalidError(
        f"a parameter cannot be a {type(value).__name__}",
        hint="pass None, bool, int, float, str, bytes, Decimal, date, time, datetime, timedelta, UUID, "
        "or lists and dicts of them",
    )


def _decimal(value: decimal.Decimal) -> str:
    if not value.is_finite():
        return f"CAST('{value}' AS DOUBLE)"
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    width = max(len(digits) + max(0, int(exponent)), scale, 1)
    if width > 38:
        raise InvalidError("a decimal has at most 38 digits", detail=str(value))
    return f"CAST('{value:f}' AS DECIMAL({width},{scale}))"
