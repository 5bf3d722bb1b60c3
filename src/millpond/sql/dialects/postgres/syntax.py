"""Rewrites syntax of PostgreSQL that DuckDB cannot parse, or would parse in another way, on its tokens.

- `->`, `->>`, `#>`, `#>>`, `#-`, `#`, `@?`, `@@`, `?`, `?|`, `?&` become calls (`"->"(a, b)`), from left
  to right: they bind less than `+` and more than LIKE and comparisons, as every operator without a rank does.
- Literals: `'a' 'b'` on two lines, `U&'…'`, `\\u` in `E'…'`, `0x1F`, `0b1`, `0o7`.
- `BETWEEN SYMMETRIC`, `LIKE ANY (…)`, `= ANY (ARRAY(SELECT …))`, `ORDER BY … USING <`, `FOR UPDATE` and
  similar.
- Calls with a syntax of their own.

Law: a text without them is returned as it is, and so is a rewritten one.
"""

from __future__ import annotations

import re

from millpond.errors import InvalidError
from millpond.sql.dialects.postgres.call_syntax import SUSPECT, call_edit
from millpond.sql.refusal import pointing

# Quoted text, names, comments and parameters, numbers, words, operators, and single signs.
_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*'|[uU]&'(?:[^']|'')*'|[bBxXnN]?'(?:[^']|'')*'|(?P<tag>\$(?:[A-Za-z_]\w*)?\$).*?(?P=tag))
    |(?P<name>"(?:[^"]|"")*")
    |(?P<mark>\$\w+)
    |(?P<number>0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)
    |(?P<word>[^\W\d][\w$]*)
    |(?P<cast>::|:=|=>)
    |(?P<operator>[-+*/<>=~!@\#%^&|`?]+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_LIBRARY = "__pg.main"  # of macros that are not for users: a function of theirs may have the same name
_CALLED = frozenset(["->", "->>", "#>", "#>>", "#-", "#", "@?", "@@", "?", "?|", "?&"])
_SUSPECT = re.compile(
    r"->|#|@\?|@@|\?|'\s*\n\s*'|\b[uU]&'|\\[uU]|\b0[xXbBoO]\w"
    r"|\busing\s*[<>]|\bsymmetric\b|\b(?:like|ilike)\s+(?:any|all|some)\b"
    r"|\b(?:any|all|some)\s*\(\s*array\b|\bfor\s+(?:no\s+key\s+|key\s+)?(?:update|share)\b|\bonly\b"
    + SUSPECT,
    re.IGNORECASE,
)
_SKIPPED = r"(?:\s|--[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*"
_AFTER_ITEMS = (
    *("from", "where", "group", "having", "window", "order", "limit", "offset", "fetch", "for", "into"),
    *("union", "except", "intersect", "on", ")", "]", ";", ""),
)
_EMPTY_ITEM = re.compile(rf",{_SKIPPED}(?:(?:{'|'.join(_AFTER_ITEMS[:-4])})\b|[)\];]|\Z)", re.IGNORECASE)
_OPENING, _CLOSING = "([{", ")]}"
# Words that can follow an operand and belong to it.
_INSIDE = frozenset(
    [
        "at",
        "time",
        "zone",
        "collate",
        "over",
        "filter",
        "within",
        "group",
        "precision",
        "varying",
        "with",
        "without",
        "local",
        "array",
        "day",
        "hour",
        "minute",
        "second",
        "month",
        "year",
        "to",
    ]
)
# Words that begin an operand, or are a part of it wherever they stand.
_OPERANDS = frozenset(
    [
        "null",
        "true",
        "false",
        "case",
        "end",
        "array",
        "row",
        "interval",
        "date",
        "timestamp",
        "timestamptz",
        "time",
        "exists",
        "cast",
        "current_date",
        "current_timestamp",
        "current_time",
        "localtime",
        "localtimestamp",
        "not_",
    ]
)
_STOP = frozenset(
    [
        "select",
        "where",
        "and",
        "or",
        "not",
        "on",
        "having",
        "by",
        "when",
        "then",
        "else",
        "between",
        "in",
        "like",
        "ilike",
        "similar",
        "is",
        "isnull",
        "notnull",
        "returning",
        "set",
        "distinct",
        "as",
        "from",
        "limit",
        "offset",
        "using",
        "values",
        "escape",
        "union",
        "except",
        "intersect",
        "order",
        "group",
        "window",
        "qualify",
        "asc",
        "desc",
        "nulls",
        "join",
        "left",
        "right",
        "full",
        "inner",
        "cross",
        "natural",
        "lateral",
        "fetch",
        "for",
        "with",
        "filter_",
        "all",
        "any",
        "some",
        "symmetric",
        "insert",
        "update",
        "delete",
        "into",
        "default",
        "placing",
        "leading",
        "trailing",
        "both",
        "if",
        "begin",
    ]
)


class _Token:
    __slots__ = ("end", "kind", "start", "text")

    def __init__(self, kind: str, text: str, start: int, end: int) -> None:
        self.kind, self.text, self.start, self.end = kind, text, start, end


def rewritten_syntax(sql: str) -> str:
    """The same text in syntax that DuckDB parses as PostgreSQL does.

    >>> rewritten_syntax("select j->'a'->>'b' = 'c' from t")
    'select "->>"("->"(j, \\'a\\'), \\'b\\') = \\'c\\' from t'
    >>> rewritten_syntax("select a - 1 from t")
    'select a - 1 from t'
    """
    if _EMPTY_ITEM.search(sql) is not None:
        _refuse_empty_items(sql)
    if _SUSPECT.search(sql) is None:
        return sql
    tokens = _tokens(sql)
    while (call := call_edit(tokens, sql)) is not None:
        sql = _edited(sql, [call])
        tokens = _tokens(sql)
    edits = [*_literals(tokens, sql), *_clauses(tokens, sql)]
    if edits:
        sql = _edited(sql, edits)
        tokens = _tokens(sql)
    while True:
        place = _first_chain(tokens)
        if place is None:
            return sql
        start, end, text = _chain(tokens, place, sql)
        sql = sql[:start] + text + sql[end:]
        tokens = _tokens(sql)


def _refuse_empty_items(sql: str) -> None:
    """Refuse a comma behind the last item of a list, which DuckDB ignores."""
    tokens = _tokens(sql)
    for n, token in enumerate(tokens):
        after = tokens[n + 1] if n + 1 < len(tokens) else None
        if token.kind == "sign" and token.text == ",":
            if after is None:
                at = (len(sql.encode()), 0)
                raise pointing("syntax error at end of input", sql, at, "an item is missing after the comma")
            if after.kind in ("sign", "word") and after.text.lower() in _AFTER_ITEMS:
                at = (len(sql[: after.start].encode()), len(after.text.encode()))
                message = f'syntax error at or near "{after.text}"'
                raise pointing(message, sql, at, "an item is missing after the comma")


def _tokens(sql: str) -> list[_Token]:
    found: list[_Token] = []
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup or ""
        if kind == "tag":
            kind = "text"
        if kind == "skip":
            continue
        if kind == "operator":
            found += _operators(match[0], match.start())
        else:
            found.append(_Token(kind, match[0], match.start(), match.end()))
    return found


def _operators(text: str, start: int) -> list[_Token]:
    """PostgreSQL's rule: an operator ends with + or - only if it has a sign that no standard one has."""
    size = len(text)
    while size > 1 and text[size - 1] in "+-" and not any(c in "~!@#%^&|`?" for c in text[: size - 1]):
        if text[:size] in ("->", "<->"):
            break
        size -= 1
    found = [_Token("operator", text[:size], start, start + size)]
    return found + (_operators(text[size:], start + size) if size < len(text) else [])


def _edited(sql: str, edits: list[tuple[int, int, str]]) -> str:
    text, at = "", 0
    for start, end, fresh in sorted(edits):
        text, at = text + sql[at:start] + fresh, end
    return text + sql[at:]


# -- literals ---------------------------------------------------------------------------------


def _literals(tokens: list[_Token], sql: str) -> list[tuple[int, int, str]]:
    edits: list[tuple[int, int, str]] = []
    n = 0
    while n < len(tokens):
        token = tokens[n]
        if token.kind == "number" and token.text[:2].lower() in ("0x", "0b", "0o"):
            edits.append((token.start, token.end, str(int(token.text, 0))))
        elif token.kind == "text" and token.text[0] in "uU" and token.text[1] == "&":
            value, end = _unicode(token.text[3:-1]), token.end
            if n + 2 < len(tokens) and tokens[n + 1].text.lower() == "uescape":
                value, end = _unicode(token.text[3:-1], tokens[n + 2].text[1:-1]), tokens[n + 2].end
            edits.append((token.start, end, value))
        elif token.kind == "text" and token.text[0] in "eE" and re.search(r"\\[uU]", token.text):
            shown = re.sub(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))", _escaped, token.text)
            edits.append((token.start, token.end, _paired(shown)))
        elif token.kind == "text":
            last = n
            while (
                last + 1 < len(tokens)
                and tokens[last + 1].kind == "text"
                and tokens[last + 1].text[0] == "'"
                and "\n" in sql[tokens[last].end : tokens[last + 1].start]
            ):
                last += 1
            if last > n:
                joined = token.text[:-1] + "".join(t.text[1:-1] for t in tokens[n + 1 : last + 1]) + "'"
                edits.append((token.start, tokens[last].end, joined))
                n = last
        n += 1
    return edits


def _unicode(body: str, escape: str = "\\") -> str:
    mark = re.escape(escape)
    pattern = re.compile(rf"{mark}(?:{mark}|\+([0-9a-fA-F]{{6}})|([0-9a-fA-F]{{4}}))")
    return _paired("'" + pattern.sub(lambda m: escape if m[0] == escape * 2 else _escaped(m), body) + "'")


def _paired(text: str) -> str:
    """Put the two halves of a character together that UTF-16 writes as a pair."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise InvalidError("invalid Unicode surrogate pair") from error


def _escaped(found: re.Match[str]) -> str:
    shown = chr(int(found[1] or found[2], 16))
    return {"'": "''", "\\": "\\\\"}.get(shown, shown)


# -- clauses ----------------------------------------------------------------------------------


def _clauses(tokens: list[_Token], sql: str) -> list[tuple[int, int, str]]:
    edits: list[tuple[int, int, str]] = []
    words = [t.text.lower() if t.kind == "word" else "" for t in tokens]
    for n, word in enumerate(words):
        before = words[n - 1] if n else ""
        if word == "symmetric" and before == "between":
            edits += _symmetric(tokens, words, n, sql)
        elif word == "using" and n + 1 < len(words) and tokens[n + 1].text in ("<", ">"):
            order = "asc" if tokens[n + 1].text == "<" else "desc"
            edits.append((tokens[n].start, tokens[n + 1].end, order))
        elif word in ("any", "all", "some") and before in ("like", "ilike"):
            edits += _like_any(tokens, words, n)
        elif word in ("any", "all", "some") and words[n + 1 : n + 4] == ["", "array", ""]:
            edits += _any_of_query(tokens, n)
        elif word == "for" and n + 1 < len(words) and words[n + 1] in ("update", "share", "no", "key"):
            last = n + 1
            more = ["update", "share", "no", "key", "of", "nowait", "skip", "locked"]
            while last + 1 < len(words) and words[last + 1] in more:
                last = _listed_end(tokens, last + 1) if words[last + 1] == "of" else last + 1
            edits.append((tokens[n].start, tokens[last].end, ""))
        elif word == "only" and before in ("from", "update", "join") and _is_name(tokens, n + 1):
            edits.append((tokens[n].start, tokens[n].end, ""))  # no table has another below it
    return edits


def _is_name(tokens: list[_Token], at: int) -> bool:
    return at < len(tokens) and tokens[at].kind in ("word", "name")


def _listed_end(tokens: list[_Token], at: int) -> int:
    """Where the list of names behind OF ends."""
    while _is_name(tokens, at + 1) or (at + 1 < len(tokens) and tokens[at + 1].text in (".", ",")):
        ends = _is_name(tokens, at) and tokens[at].text.lower() != "of"
        if ends and tokens[at + 1].text not in (".", ","):
            break
        at += 1
    return at


def _symmetric(tokens: list[_Token], words: list[str], n: int, sql: str) -> list[tuple[int, int, str]]:
    """`x BETWEEN SYMMETRIC a AND b` is `x BETWEEN least(a, b) AND greatest(a, b)`."""
    depth, middle = 0, n + 1
    while middle < len(tokens) and (depth or words[middle] != "and"):
        depth += (tokens[middle].text in _OPENING) - (tokens[middle].text in _CLOSING)
        middle += 1
    if middle + 1 >= len(tokens):
        return []
    end = _operand_end(tokens, middle + 1)
    low = sql[tokens[n + 1].start : tokens[middle - 1].end]
    high = sql[tokens[middle + 1].start : tokens[end].end]
    least, most = f"{_LIBRARY}.least_of_two({low}, {high})", f"{_LIBRARY}.greatest_of_two({low}, {high})"
    return [(tokens[n].start, tokens[end].end, f"{least} and {most}")]


def _like_any(tokens: list[_Token], words: list[str], n: int) -> list[tuple[int, int, str]]:
    """`x LIKE ANY (patterns)` is a call with the patterns as an array."""
    like = n - 1
    negated = words[like - 1] == "not"
    last = like - 2 if negated else like - 1
    first = _operand_start(tokens, last)
    end = _bracket_end(tokens, n + 1)
    if end >= len(tokens):
        return []
    kind = "all" if words[n] == "all" else "any"
    name = f"{_LIBRARY}.{'not_' if negated else ''}{words[like]}_{kind}"
    start, stop = tokens[first].start, tokens[end].end  # what is inside may be edited as well
    return [(start, start, f"{name}("), (tokens[last].end, tokens[n + 1].start, ", "), (stop, stop, ")")]


def _any_of_query(tokens: list[_Token], n: int) -> list[tuple[int, int, str]]:
    """`= ANY (ARRAY(SELECT …))` is `= ANY (SELECT …)`: DuckDB would compare with the array itself."""
    if tokens[n + 1].text != "(" or tokens[n + 3].text != "(":
        return []
    end = _bracket_end(tokens, n + 3)
    if end + 1 >= len(tokens) or tokens[end + 1].text != ")":
        return []  # ARRAY(SELECT …) || …
    return [(tokens[n + 2].start, tokens[n + 3].end, ""), (tokens[end].start, tokens[end].end, "")]


def _bracket_end(tokens: list[_Token], at: int) -> int:
    """The place of the bracket that closes the one here; behind the last token if there is none."""
    depth = 0
    while at < len(tokens):
        depth += (tokens[at].text in _OPENING) - (tokens[at].text in _CLOSING)
        if not depth:
            break
        at += 1
    return at


# -- operators --------------------------------------------------------------------------------


def _first_chain(tokens: list[_Token]) -> int | None:
    """The place of an operator that becomes a call, the innermost and leftmost one first."""
    best, best_depth, depth = None, -1, 0
    for n, token in enumerate(tokens):
        depth += (token.text in _OPENING) if token.kind == "sign" else 0
        if token.kind == "operator" and token.text in _CALLED and depth > best_depth and n:
            best, best_depth = n, depth
        depth -= (token.text in _CLOSING) if token.kind == "sign" else 0
    return best


def _chain(tokens: list[_Token], place: int, sql: str) -> tuple[int, int, str]:
    """Replace one operator and its operands: it is the leftmost of its level."""
    first, last = _operand_start(tokens, place - 1), _operand_end(tokens, place + 1)
    left = sql[tokens[first].start : tokens[place - 1].end]
    right = sql[tokens[place + 1].start : tokens[last].end] if place + 1 < len(tokens) else ""
    return tokens[first].start, tokens[last].end, f'"{tokens[place].text}"({left}, {right})'


_TIGHT = frozenset(["+", "-", "*", "/", "%", "^"])


def _operand_start(tokens: list[_Token], at: int) -> int:
    """The first token of the operand that ends here; operators of the same level on its left belong to it."""
    depth, n = 0, at
    while n >= 0:
        token = tokens[n]
        if token.kind == "sign" and token.text in _CLOSING:
            depth += 1
        elif token.kind == "sign" and token.text in _OPENING:
            if depth == 0:
                return n + 1
            depth -= 1
        elif depth == 0:
            if token.kind == "word":
                word = token.text.lower()
                if word == "end":
                    depth += 1
                    n = _case_start(tokens, n)
                    depth -= 1
                elif word in _STOP:
                    return n + 1
            elif (
                (token.kind == "operator" and token.text in ("=", "<", ">", "<=", ">=", "<>", "!="))
                or (token.kind == "sign" and token.text in ",;:")
                or token.text in (":=", "=>")
            ):
                return n + 1
        n -= 1
    return 0


def _case_start(tokens: list[_Token], end: int) -> int:
    depth = 0
    for n in range(end, -1, -1):
        word = tokens[n].text.lower() if tokens[n].kind == "word" else ""
        depth += (word == "end") - (word == "case")
        if depth == 0:
            return n
    return 0


def _operand_end(tokens: list[_Token], at: int) -> int:
    """The last token of the operand that begins here."""
    depth, n, ended = 0, at, False
    while n < len(tokens):
        token = tokens[n]
        if token.kind == "sign" and token.text in _OPENING:
            depth += 1
        elif token.kind == "sign" and token.text in _CLOSING:
            if depth == 0:
                return n - 1
            depth -= 1
            ended = True
        elif depth == 0:
            if token.kind == "operator":
                if token.text not in _TIGHT and ended:
                    return n - 1
                ended = False
            elif token.kind == "word":
                word = token.text.lower()
                if word == "case":
                    n, ended = _case_end(tokens, n), True
                elif (ended and word not in _INSIDE) or (
                    word in _STOP and word not in ("with", "group", "filter")
                ):
                    return n - 1
                else:
                    ended = word not in ("at", "collate", "interval")
            elif token.kind in ("text", "number", "mark", "name"):
                if ended and token.kind != "text":
                    return n - 1
                ended = True
            elif (token.kind == "cast" and token.text == "::") or (
                token.kind == "sign" and token.text == "."
            ):
                ended = False
            else:
                return n - 1
        n += 1
    return len(tokens) - 1


def _case_end(tokens: list[_Token], start: int) -> int:
    depth = 0
    for n in range(start, len(tokens)):
        word = tokens[n].text.lower() if tokens[n].kind == "word" else ""
        depth += (word == "case") - (word == "end")
        if depth == 0:
            return n
    return len(tokens) - 1
