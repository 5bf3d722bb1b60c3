"""TUMBLE, HOP and SESSION in FROM, written as SQL that DuckDB can bind.

    TUMBLE(rows, time, size)
    HOP(rows, time, slide, size)
    SESSION(rows, time, gap [, key, ...])

`rows` is a table, a view, a common table expression or a query in parentheses.
Each gives the columns of its rows and `window_start` and `window_end`.  They
become a projection whose columns are marked by their names; the rule for
projections knows the marks and puts the operator there (`rules/time_window.py`).
"""

from __future__ import annotations

from sqlglot import Token, TokenType, tokenize
from sqlglot.errors import TokenError

from millpond.errors import InvalidError
from millpond.sql.as_of_now import plain_tables
from millpond.sql.refusal import pointing
from millpond.sql.types import quoted, text_literal

MARK = "millpond.window."  # in front of the names of marked columns
KIND, START, END, SIZE, SLIDE, KEY = (
    MARK + word for word in ("kind", "start", "end", "size", "slide", "key.")
)

_USAGE = {
    "tumble": "TUMBLE(rows, time, INTERVAL '10 minutes')",
    "hop": "HOP(rows, time, INTERVAL '1 minute', INTERVAL '10 minutes'): the slide, then the size",
    "session": "SESSION(rows, time, INTERVAL '10 minutes', key)",
}


def as_plain_sql(sql: str) -> str:
    """The text without functions of windows.

    >>> "TUMBLE" in as_plain_sql("select * from TUMBLE(t, ts, interval 1 hour)")
    False
    >>> as_plain_sql("select tumble from t")
    'select tumble from t'
    """
    sql = plain_tables(sql)
    if not any(word in sql.lower() for word in _USAGE):
        return sql
    try:
        tokens = tokenize(sql, read="duckdb")
    except TokenError:
        return sql  # the binder tells what is wrong with it
    for number in reversed(range(len(tokens) - 1)):  # inner ones first: they stand further right
        token = tokens[number]
        quoted_one = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        is_name = not quoted_one and token.text.lower() in _USAGE
        if is_name and tokens[number + 1].token_type == TokenType.L_PAREN:
            parts, end = _arguments(sql, tokens, number)
            return as_plain_sql(sql[: token.start] + _written(sql, token, parts) + sql[end:])
    return sql


def _arguments(sql: str, tokens: list[Token], number: int) -> tuple[list[str], int]:
    """The arguments of the call as text, and where it ends."""
    depth, begin = 0, tokens[number + 1].end + 1
    found = []
    for token in tokens[number + 1 :]:
        if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE):
            depth += 1
        elif token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE):
            depth -= 1
            if depth == 0:
                found.append(sql[begin : token.start].strip())
                return found, token.end + 1
        elif token.token_type == TokenType.COMMA and depth == 1:
            found.append(sql[begin : token.start].strip())
            begin = token.end + 1
    raise _wrong(sql, tokens[number], "its parenthesis is not closed")


def _written(sql: str, call: Token, parts: list[str]) -> str:
    kind = call.text.lower()
    wanted = {"tumble": 3, "hop": 4, "session": 3}[kind]
    if len(parts) < wanted or (len(parts) > wanted and kind != "session"):
        raise _wrong(sql, call, f"it takes {wanted} arguments, there are {len(parts)}")
    rows, time, first = _without(parts[0], "table"), _named(_described(parts[1])), parts[2]
    marked = [(KIND, text_literal(kind)), (START, time), (END, time)]
    marked += [(SLIDE, first), (SIZE, parts[3])] if kind == "hop" else [(SIZE, first)]
    if kind == "session":
        marked += [(f"{KEY}{n:03}", key) for n, key in enumerate(map(_named, parts[3:]))]
    listed = ", ".join(f"{text} AS {quoted(name)}" for name, text in marked)
    hidden = ", ".join(quoted(name) for name, _ in marked if name not in (START, END))
    return (
        f"(SELECT * EXCLUDE ({hidden}) RENAME ({quoted(START)} AS window_start, {quoted(END)} AS window_end)"
        f" FROM (SELECT *, {listed} FROM {rows}))"
    )


def _without(text: str, word: str) -> str:
    first, _, rest = text.partition(" ")
    return rest.strip() if first.lower() == word and rest else text


def _described(text: str) -> str:
    """DESCRIPTOR(ts) is ts, for those who come from Flink."""
    low = text.lower()
    return text[text.index("(") + 1 : -1].strip() if low.startswith("descriptor") and low[-1] == ")" else text


def _named(text: str) -> str:
    """A bare name may be a word of SQL."""
    return quoted(text) if text.isidentifier() else text


def _wrong(sql: str, call: Token, why: str) -> InvalidError:
    kind = call.text.lower()
    at = (len(sql[: call.start].encode()), len(call.text))
    return pointing(f"{kind.upper()} cannot be read: {why}", sql, at, f"write {_USAGE[kind]}")
