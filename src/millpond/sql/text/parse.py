"""Splits a text into statements, and reads their words from left to right.

sqlglot's tokenizer separates words, string literals and comments.  `SqlFragment` is a section of a text, and
`Words` a cursor over it, with which every statement reads the clauses that are Millpond's own.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import sqlglot
from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from millpond.errors import InvalidError
from millpond.kernels.sql_pictures import picture
from millpond.sql.text.memoized_text import of_short_texts
from millpond.sql.text.with_changes import without_with
from millpond.valid_text import require_text

OWN = ("postgres", "duckdb")  # dialects whose text DuckDB tries unchanged
SPARK, LAX_SPARK = "spark", "sparkwithoutansi"  # with and without ANSI mode
SYSTEM_SCHEMAS = ("millpond", "state")  # relations that the system provides; see `sql.reads.system_names`
DEFAULT_SCHEMAS = ("main", "public", "pond")  # what may stand before a name, and means nothing
MAKE_SCHEMA = "CREATE SCHEMA makes one; information_schema.schemata lists them"


@dataclass(frozen=True)
class SqlFragment:
    """Consecutive tokens of a text; positions refer to that text."""

    text: str
    tokens: tuple[Token, ...]
    dialect: str = "postgres"
    said: str | None = None  # what the user wrote, if this is a translation of it

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def start(self) -> int:
        return self.tokens[0].start if self.tokens else len(self.text)

    @property
    def sql(self) -> str:
        """The text of the tokens as written, including what is between them."""
        return self.text[self.start : self.tokens[-1].end + 1] if self.tokens else ""

    def word(self, place: int) -> str:
        """Return a token in upper case; "" for string literals, quoted names, and beyond the end."""
        return self.words[place] if 0 <= place < len(self.tokens) else ""

    @cached_property
    def words(self) -> tuple[str, ...]:
        """All words, computed once: a text may have tens of thousands of values."""
        quoted = (TokenType.STRING, TokenType.IDENTIFIER)
        return tuple("" if t.token_type in quoted else t.text.upper() for t in self.tokens)

    def has(self, place: int, *words: str) -> bool:
        return all(self.word(place + n) == word for n, word in enumerate(words))

    def part(self, start: int, stop: int | None = None) -> SqlFragment:
        return replace(self, tokens=self.tokens[start:stop])

    def find(self, *words: str, start: int = 0) -> int | None:
        """Return the first place of these words outside all brackets."""
        if words[0] not in self.words:
            return None
        return next((n for n in self.outside(start) if self.has(n, *words)), None)

    def outside(self, start: int = 0, *, types: bool = False) -> Iterator[int]:
        """Yield the places outside all brackets; with `types` also outside those of struct<…> and similar."""
        depth = angles = 0
        for place in range(start, len(self.tokens)):
            kind, word = self.tokens[place].token_type, self.word(place)
            if kind in _CLOSING:
                depth -= 1
            elif angles and word and not word.strip(">"):
                angles = max(0, angles - len(word))
            if depth == 0 and angles == 0:
                yield place
            if kind in _OPENING:
                depth += 1
            elif types and word == "<" and self.word(place - 1) in _NESTED:
                angles += 1

    def bracket(self, place: int) -> tuple[SqlFragment, int]:
        """Return what is inside the brackets that open here, and the place after them."""
        if self.word(place) != "(":
            self.fail("a bracket should open here", place)
        depth = 0
        for n in range(place, len(self.tokens)):
            depth += (self.tokens[n].token_type in _OPENING) - (self.tokens[n].token_type in _CLOSING)
            if depth == 0:
                return self.part(place + 1, n), n + 1
        self.fail("the bracket that opens here is never closed", place)
        raise AssertionError

    def split(self, *, types: bool = False) -> list[SqlFragment]:
        """Split at commas; with `types` not at commas inside struct<…> and similar."""
        cuts = [n for n in self.outside(types=types) if self.tokens[n].token_type is TokenType.COMMA]
        edges = [-1, *cuts, len(self.tokens)]
        return [self.part(a + 1, b) for a, b in itertools.pairwise(edges)]

    def rewritten(self, edits: Iterable[tuple[int, int, str]]) -> SqlFragment:
        """Replace sections of the text: (start, end, new text) of each, in order."""
        text, at = "", self.start
        for start, end, fresh in edits:
            text += self.text[at:start] + fresh
            at = end
        text += self.text[at : self.tokens[-1].end + 1]
        return SqlFragment(text, tokens_of(text, self.dialect), self.dialect, self.said)

    def fail(self, message: str, place: int = 0, hint: str | None = None) -> None:
        token = self.tokens[place] if 0 <= place < len(self.tokens) else None
        if token is not None:
            at = (
                len(self.text[: token.start].encode()),
                len(self.text[token.start : token.end + 1].encode()),
            )
        else:
            last = self.tokens[-1].end + 1 if self.tokens else len(self.text)
            at = (len(self.text[:last].encode()), 1)
        error = InvalidError(message, detail="in the statement\n" + picture(self.text, at), hint=hint)
        error.place = (self.text, at)
        raise error


_NESTED = ("STRUCT", "ROW", "ARRAY", "LIST", "MAP")  # types that may have angle brackets
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def statements(text: str, dialect: str) -> list[SqlFragment]:
    """Split a text into statements.

    >>> [s.sql for s in statements("select 1; -- done; \\nselect ';' ;", "postgres")]
    ['select 1', "select ';'"]
    """
    tokens = tokens_of(require_text(text, "the SQL"), dialect)
    found: list[SqlFragment] = []
    edges = [n for n, t in enumerate(tokens) if t.token_type is TokenType.SEMICOLON]
    for a, b in zip([-1, *edges], [*edges, len(tokens)], strict=True):
        if words := tokens[a + 1 : b]:
            one = SqlFragment(text, words, dialect)
            found.append(without_with(one) if one.word(0) == "WITH" and dialect == "postgres" else one)
    return found


@of_short_texts
def tokens_of(text: str, dialect: str) -> tuple[Token, ...]:
    """Split a text into tokens.

    sqlglot does not tokenize what follows some verbs, and joins words that belong together; both are undone.
    """
    try:
        found = _tokenized(text, dialect)
    except ValueError as error:
        if isinstance(error, SqlglotError):
            raise InvalidError("this is not SQL", detail=_where(text)) from None
        known = sorted(
            d for d, c in sqlglot.Dialect.classes.items() if d and c.__module__.startswith("sqlglot.")
        )
        near = difflib.get_close_matches(dialect, known, 1)
        raise InvalidError(
            f"no SQL dialect named {dialect!r}",
            detail=f"dialects are {', '.join(known)}",
            hint=f"did you mean {near[0]!r}?" if near else None,
        ) from error
    except SqlglotError:
        raise InvalidError("a text or a name in quotes is never closed", detail=_where(text)) from None
    for n, token in enumerate(found):
        first = n == 0 or found[n - 1].token_type is TokenType.SEMICOLON
        if first and token.token_type in _SWALLOWING and n + 1 < len(found):
            behind = token.end + 1
            rest = tokens_of("x" + text[behind:], dialect)[1:]  # after another word everything is tokenized
            found = [*found[: n + 1], *(_moved(t, behind - 1) for t in rest)]
            break
    return tuple(w for token in found for w in ((token,) if " " not in token.text else _single(token, text)))


def _tokenized(text: str, dialect: str) -> list[Token]:
    """sqlglot takes `$1,$` for the begin of a text in dollar quotes; `@1` is a parameter, too."""
    if dialect not in OWN or _NUMBERED.search(text) is None:
        return list(sqlglot.tokenize(text, read=dialect))
    masked = _PARAMETER.sub(lambda found: "@" if found[0] == "$" else found[0], text)
    return [
        Token(TokenType.PARAMETER, "$", t.line, t.col, t.start, t.end)
        if t.text == "@" and text[t.start] == "$"
        else t
        for t in sqlglot.tokenize(masked, read=dialect)
    ]


_NUMBERED = re.compile(r"\$\w")
# Quoted text and comments, which stay as they are, or the sign of a numbered parameter.
_PARAMETER = re.compile(
    r"""--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$((?:[A-Za-z_]\w*)?)\$.*?\$\1\$"""
    r"""|\$(?=\w)""",
    re.DOTALL,
)


def _where(text: str) -> str:
    """Show the position of the unclosed quote; sqlglot's own message might show a secret."""
    last = None
    for found in _QUOTED.finditer(text):
        last = found if found["open"] else None
    at = None if last is None else (len(text[: last.start()].encode()), 1)
    return "in the statement\n" + picture(text, at)


# Quoted text and comments; the last one may be unclosed.
_QUOTED = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|(?P<open>['"]|\$\w*\$).*\Z""",
    re.DOTALL,
)
_SWALLOWING = (TokenType.COMMAND, TokenType.SHOW, TokenType.EXECUTE, TokenType.FETCH, TokenType.RENAME)


def _moved(token: Token, by: int) -> Token:
    return Token(token.token_type, token.text, token.line, token.col, token.start + by, token.end + by)


def _single(token: Token, text: str) -> Iterator[Token]:
    quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    if quoted or " " not in token.text or not token.text.replace(" ", "").isalpha():
        yield token
        return
    for match in re.finditer(r"\w+", text[token.start : token.end + 1]):
        start = token.start + match.start()
        yield Token(TokenType.VAR, match[0], token.line, token.col, start, start + len(match[0]) - 1)


def _undirected(part: SqlFragment) -> SqlFragment:
    """A name in an index without its direction."""
    end = len(part)
    if end > 2 and part.has(end - 2, "NULLS") and part.word(end - 1) in ("FIRST", "LAST"):
        end -= 2
    if end > 1 and part.word(end - 1) in ("ASC", "DESC"):
        end -= 1
    return part.part(0, end)


class Words:
    """A cursor that reads a fragment from left to right."""

    def __init__(self, fragment: SqlFragment, at: int = 0) -> None:
        self.fragment = fragment
        self.at = at

    @property
    def over(self) -> bool:
        return self.at >= len(self.fragment)

    @property
    def rest(self) -> SqlFragment:
        return self.fragment.part(self.at)

    def take(self, *words: str) -> bool:
        """Skip these words if they are next."""
        if not self.fragment.has(self.at, *words):
            return False
        self.at += len(words)
        return True

    def need(self, *words: str) -> None:
        if not self.take(*words):
            self.fail(f"{' '.join(words)} should stand here")

    def name(self, what: str = "name") -> str:
        """Read an identifier: quoted, or a plain word; `main.x` is `x`."""
        if self.over:
            self.fail(f"the {what} is missing")
        token = self.fragment.tokens[self.at]
        plain = token.text[:1].isalpha() or token.text[:1] == "_"
        if token.token_type is not TokenType.IDENTIFIER and (
            token.token_type is TokenType.STRING or not plain
        ):
            self.fail(f"the {what} should stand here")
        if not token.text:
            self.fail(f"the {what} is empty")
        self.at += 1
        if self.fragment.word(self.at) == ".":
            if token.text.lower() in SYSTEM_SCHEMAS:
                self.at -= 1
                self.fail(f"schema {token.text!r} belongs to the system and can only be read by SELECT")
            if token.text.lower() not in DEFAULT_SCHEMAS:
                self.at -= 1
                self.fail(f'schema "{token.text}" does not exist', MAKE_SCHEMA)
            self.at += 1
            return self.name(what)
        return str(token.text)

    def number(self) -> int:
        token = None if self.over else self.fragment.tokens[self.at]
        if token is None or not token.text.isdecimal():
            self.fail("a number should stand here")
            raise AssertionError
        self.at += 1
        return int(token.text)

    def text(self) -> str:
        """Read an option value: a string literal, a number or a word."""
        if self.over:
            self.fail("a value should stand here")
        token = self.fragment.tokens[self.at]
        self.at += 1
        if token.text == "-" and not self.over:
            return "-" + self.text()
        return str(token.text)

    def names(self, *, ordered: bool = False) -> list[str]:
        """Read `(a, b, …)`, each name once; with `ordered`, ASC, DESC, NULLS FIRST or LAST may follow it."""
        inner, self.at = self.fragment.bracket(self.at)
        found: list[str] = []
        for number, part in enumerate(inner.split()):
            if not part.tokens:
                commas = [n for n in inner.outside() if inner.word(n) == ","]
                side = "follows" if number == len(commas) else "is before"
                inner.fail(
                    f"no name {side} this comma", commas[min(number, len(commas) - 1)] if commas else 0
                )
            name = Words(_undirected(part) if ordered else part).only_name()
            if name.lower() in (other.lower() for other in found):
                part.fail(f"column {name!r} is there twice")
            found.append(name)
        return found

    def only_name(self) -> str:
        found = self.name()
        self.end()
        return found

    def if_not_exists(self) -> bool:
        return self.take("IF", "NOT", "EXISTS")

    def if_exists(self) -> bool:
        return self.take("IF", "EXISTS")

    def end(self) -> None:
        if not self.over:
            self.fail("nothing more should stand here")

    def fail(self, message: str, hint: str | None = None) -> None:
        self.fragment.fail(message, self.at, hint)


def closest_name(name: str, known: Sequence[str]) -> str | None:
    lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), lower, 1)
    return f"did you mean {lower[near[0]]!r}?" if near else None
