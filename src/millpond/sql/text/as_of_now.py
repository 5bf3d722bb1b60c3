"""Rewrites FOR SYSTEM_TIME AS OF PROCTIME() in FROM to SQL that DuckDB can bind.

    orders JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON …

The table becomes a projection with a marked column; the join rules recognize the mark
(`passes/recognize_as_of_now.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from sqlglot import Token, TokenType, tokenize
from sqlglot.errors import TokenError

from millpond.sql.binding.types import quoted
from millpond.sql.refusal import pointing

MARK = "millpond.as_of_now"
_MARKED = f"true AS {quoted(MARK)}"
_PHRASE = re.compile(r"\bFOR\s+SYSTEM_TIME\s+AS\s+OF\s+\w+(?:\s*\(\s*\))?", re.IGNORECASE)
_WORDS = ("FOR", "SYSTEM_TIME", "AS", "OF")
_NOW = ("PROCTIME", "NOW", "CURRENT_TIMESTAMP")

_Word = tuple[str, int, int]  # in capitals, start, end


def plain_tables(sql: str) -> str:
    """Replace each FOR SYSTEM_TIME AS OF PROCTIME() with a marked projection.

    >>> plain_tables("select * from a join b for system_time as of proctime() as c using (k)")[-28:]
    'now" FROM b)) as c using (k)'
    """
    if "system_time" not in sql.lower():
        return sql
    try:
        words = [word for token in tokenize(sql, read="duckdb") for word in _single(token, sql)]
    except TokenError:
        return sql  # the binder reports the error
    places = [n for n in range(len(words)) if tuple(w for w, _, _ in words[n : n + 4]) == _WORDS]
    for place in reversed(places):
        sql = _without(sql, words, place)
    return sql


def phrase(sql: str, said: str, at: tuple[int, int]) -> tuple[int, int] | None:
    """Return the position of FOR SYSTEM_TIME AS OF … in a statement, for a mark in its rewritten text.

    >>> said = "select * from a join b for system_time as of now() using (k)"
    >>> phrase(plain_tables(said), said, (plain_tables(said).index("true"), 4))
    (23, 27)
    """
    before, marked = (part.decode(errors="ignore") for part in (sql.encode()[: at[0]], sql.encode()[at[0] :]))
    found = list(_PHRASE.finditer(said))
    number = before.count(_MARKED)
    if not marked.startswith(_MARKED) or number >= len(found):
        return None
    return len(said[: found[number].start()].encode()), len(found[number][0].encode())


def _without(sql: str, words: Sequence[_Word], place: int) -> str:
    begin = place - 1
    while begin >= 2 and words[begin - 1][0] == ".":
        begin -= 2
    end = place + 4
    if end >= len(words) or words[end][0] not in _NOW or begin < 0:
        _wrong(sql, words[place])
    end += 3 if [w for w, _, _ in words[end + 1 : end + 3]] == ["(", ")"] else 1
    table = sql[words[begin][1] : words[place - 1][2] + 1]
    called = sql[words[place - 1][1] : words[place - 1][2] + 1]
    stop = words[end - 1][2] + 1
    named = end < len(words) and (words[end][0] == "AS" or words[end][0] not in AFTER_TABLE)
    rows = f"(SELECT * EXCLUDE ({quoted(MARK)}) FROM (SELECT *, {_MARKED} FROM {table}))"
    return f"{sql[: words[begin][1]]}{rows}{'' if named else f' AS {called}'}{sql[stop:]}"


AFTER_TABLE = (
    *("ON", "USING", "WHERE", "JOIN", "LEFT", "RIGHT", "INNER", "FULL", "CROSS", "GROUP", "ORDER", "HAVING"),
    *("LIMIT", "UNION", "EXCEPT", "INTERSECT", "QUALIFY", "WINDOW", "NATURAL", ",", ")", ";"),
)


def _single(token: Token, sql: str) -> list[_Word]:
    """Split a token into words; the tokenizer joins some words that belong together."""
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return [("", token.start, token.end)]
    text = sql[token.start : token.end + 1]
    if " " not in text.strip():
        return [(str(token.text).upper(), token.start, token.end)]
    return [
        (m[0].upper(), token.start + m.start(), token.start + m.end() - 1) for m in re.finditer(r"\S+", text)
    ]


def _wrong(sql: str, word: _Word) -> NoReturn:
    at = (len(sql[: word[1]].encode()), len("FOR SYSTEM_TIME"))
    hint = "write JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON …; ASOF JOIN goes by times in rows"
    raise pointing("a view joins a table as of PROCTIME(), and no other time", sql, at, hint)
