"""Rewrites TUMBLE, HOP, CUMULATE, CALENDAR and SESSION in FROM to SQL that DuckDB can bind.

    TUMBLE(rows, time, size [, offset])
    HOP(rows, time, slide, size [, offset])
    CUMULATE(rows, time, step, size [, offset])
    CALENDAR(rows, time, unit [, zone])
    SESSION(rows, time, gap [, key, ...] [, offset]), or SESSION(rows PARTITION BY key, time, gap [, offset])

`rows` is a table, a view, a common table expression or a query in parentheses.
Each returns the columns of its rows and `window_start` and `window_end`.  They become
a projection whose columns are marked by their names; the projection rule recognizes
the marks and adds the operator (`lowering/rules/time_window.py`).  Where the rows have a name and the call
has none, the name stays usable: `SELECT bid.price FROM TUMBLE(bid, …)`.  Flink's forms mean the same:
`TABLE(TUMBLE(TABLE bid, DESCRIPTOR(time), …))`.
"""

from __future__ import annotations

from sqlglot import Token, TokenType, tokenize
from sqlglot.errors import TokenError

from millpond.errors import InvalidError
from millpond.sql.binding.types import quoted, text_literal
from millpond.sql.refusal import pointing
from millpond.sql.text.as_of_now import AFTER_TABLE, plain_tables

MARK = "millpond.window."  # prefix of the names of marked columns
KIND, START, END, SIZE, SLIDE, OFFSET, UNIT, ZONE, KEY = (
    MARK + word for word in ("kind", "start", "end", "size", "slide", "offset", "unit", "zone", "key.")
)

_ARGUMENTS = {  # the marks of the arguments after rows and time, and how many of them must be there
    "tumble": ((SIZE, OFFSET), 1),
    "hop": ((SLIDE, SIZE, OFFSET), 2),
    "cumulate": ((SLIDE, SIZE, OFFSET), 2),
    "calendar": ((UNIT, ZONE), 1),
    "session": ((SIZE,), 1),
}
_USAGE = {
    "tumble": "TUMBLE(rows, time, INTERVAL '10 minutes')",
    "hop": "HOP(rows, time, INTERVAL '1 minute', INTERVAL '10 minutes'): the slide, then the size",
    "cumulate": "CUMULATE(rows, time, INTERVAL '1 minute', INTERVAL '10 minutes'): the step, then the size",
    "calendar": "CALENDAR(rows, time, 'month', 'Europe/Berlin')",
    "session": "SESSION(rows, time, INTERVAL '10 minutes', key)",
}


def as_plain_sql(sql: str) -> str:
    """Replace window functions in FROM with marked projections.

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
        return sql  # the binder reports the error
    for number in reversed(range(len(tokens) - 1)):  # from right to left, so that inner calls come first
        token = tokens[number]
        if _is_call(tokens, number):
            parts, end = _arguments(sql, tokens, number)
            keys: list[str] = []
            if token.text.lower() == "session":
                parts[0], keys = _partitioned(parts[0])
            begin, after = _in_table(tokens, number, token.start, end)
            written = _written(sql, token, [*parts, *keys]) + _named_like(tokens, number, parts[0], after)
            return as_plain_sql(sql[:begin] + written + sql[after:])
    return sql


def calls_as_names(sql: str) -> str:
    """Write a quoted name of the same length for each window function, so that positions in the text stay.

    >>> calls_as_names("select x from HOP(t, at, a, b) h where")
    'select x from "HOP___________" h where'
    """
    try:
        tokens = tokenize(sql, read="duckdb")
    except TokenError:
        return sql
    parts, done = [], 0
    for number, token in enumerate(tokens[:-1]):
        if token.start >= done and _is_call(tokens, number):
            _, end = _arguments(sql, tokens, number)
            length = len(sql[token.start : end].encode())
            parts += [sql[done : token.start], '"' + token.text.ljust(length - 2, "_") + '"']
            done = end
    return "".join([*parts, sql[done:]])


def _is_call(tokens: list[Token], number: int) -> bool:
    token = tokens[number]
    # DuckDB quotes "session" when it prints a translated text, because it is a keyword there.
    quoted_one = token.token_type is TokenType.IDENTIFIER and token.text != "session"
    is_name = not quoted_one and token.token_type is not TokenType.STRING and token.text.lower() in _USAGE
    return is_name and tokens[number + 1].token_type == TokenType.L_PAREN


def _arguments(sql: str, tokens: list[Token], number: int) -> tuple[list[str], int]:
    """Return the arguments of the call as text, and the end of the call."""
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


def _in_table(tokens: list[Token], number: int, begin: int, end: int) -> tuple[int, int]:
    """The place of a call, with the TABLE(…) of Flink around it."""
    after = next((t for t in tokens if t.start >= end), None)
    before = tokens[number - 2 : number] if number > 1 else []
    if after is None or after.token_type != TokenType.R_PAREN:
        return begin, end
    if [t.text.upper() for t in before] != ["TABLE", "("]:
        return begin, end
    return before[0].start, after.end + 1


def _partitioned(rows: str) -> tuple[str, list[str]]:
    """The rows of SESSION and its keys, if they are written as in Flink.

    >>> _partitioned("TABLE bid PARTITION BY (bidder, auction)")
    ('TABLE bid', ['bidder', 'auction'])
    >>> _partitioned("(select 1)")
    ('(select 1)', [])
    """
    tokens = tokenize(rows, read="duckdb")
    depth = 0
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if not depth and token.token_type == TokenType.PARTITION_BY:
            listed = rows[token.end + 1 :].strip()
            if listed.startswith("(") and listed.endswith(")"):
                listed = listed[1:-1]
            return rows[: token.start].strip(), [key.strip() for key in listed.split(",")]
    return rows, []


def _written(sql: str, call: Token, parts: list[str]) -> str:
    kind = call.text.lower()
    marks, least = _ARGUMENTS[kind]
    if not 2 + least <= len(parts) <= 2 + len(marks) and not (kind == "session" and len(parts) > 3):
        takes = str(2 + least) if len(marks) == least else f"{2 + least} or {2 + len(marks)}"
        raise _wrong(sql, call, f"it takes {takes} arguments, there are {len(parts)}")
    rows, time = _without(parts[0], "table"), _named(_described(parts[1]))
    marked = [(KIND, text_literal(kind)), (START, time), (END, time)]
    marked += list(zip(marks, parts[2:], strict=False))
    if kind == "session":
        marked += [(f"{KEY}{n:03}", key) for n, key in enumerate(map(_named, parts[3:]))]
    listed = ", ".join(f"{text} AS {quoted(name)}" for name, text in marked)
    hidden = ", ".join(quoted(name) for name, _ in marked if name not in (START, END))
    return (
        f"(SELECT * EXCLUDE ({hidden}) RENAME ({quoted(START)} AS window_start, {quoted(END)} AS window_end)"
        f" FROM (SELECT *, {listed} FROM {rows}))"
    )


def _named_like(tokens: list[Token], call: int, rows: str, end: int) -> str:
    """Return the alias that keeps the name of the rows usable, if they have one that nothing else has."""
    name = _without(rows, "table")
    own = tokenize(name, read="duckdb")
    if not own or any(t.token_type == TokenType.L_PAREN for t in own):
        return ""
    after = next((t for t in tokens if t.start >= end), None)
    if after is not None and after.text.upper().split(" ")[0] not in AFTER_TABLE:
        return ""  # it has an alias
    last = own[-1].text.lower()
    for place, token in enumerate(tokens):
        qualifies = place + 1 < len(tokens) and tokens[place + 1].token_type == TokenType.DOT
        inside = tokens[call].start <= token.start < end
        if token.text.lower() != last or qualifies or inside or not place or _hidden(tokens, place, call):
            continue
        if tokens[place - 1].text.upper().split(" ")[-1] in ("FROM", "JOIN", ",", "(", "AS", "TABLE"):
            return ""  # another relation, or a column, may have this name
    return f" AS {quoted(own[-1].text)}"


def _hidden(tokens: list[Token], place: int, call: int) -> bool:
    """Is a token in a subquery or another call with an alias, which does not contain this call?"""
    opened: list[int] = []
    for number, token in enumerate(tokens):
        if token.token_type == TokenType.L_PAREN:
            opened.append(number)
        elif token.token_type == TokenType.R_PAREN and opened:
            begin = opened.pop()
            within = begin < place < number and not begin < call < number
            after = tokens[number + 1].text.upper().split(" ")[0] if number + 1 < len(tokens) else ""
            named = bool(after) and after not in (*AFTER_TABLE, ")")
            query = tokens[begin + 1].text.upper() in ("SELECT", "WITH")
            if within and named and (query or (begin > 0 and _is_call(tokens, begin - 1))):
                return True
    return False


def _without(text: str, word: str) -> str:
    first, _, rest = text.partition(" ")
    return rest.strip() if first.lower() == word and rest else text


def _described(text: str) -> str:
    """Turn DESCRIPTOR(ts), Flink's syntax, into ts."""
    low = text.lower()
    return text[text.index("(") + 1 : -1].strip() if low.startswith("descriptor") and low[-1] == ")" else text


def _named(text: str) -> str:
    """Quote a bare name, which may be a SQL keyword."""
    return quoted(text) if text.isidentifier() else text


def _wrong(sql: str, call: Token, why: str) -> InvalidError:
    kind = call.text.lower()
    at = (len(sql[: call.start].encode()), len(call.text))
    return pointing(f"{kind.upper()} cannot be read: {why}", sql, at, f"write {_USAGE[kind]}")
