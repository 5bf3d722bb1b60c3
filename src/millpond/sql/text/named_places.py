"""Where a statement names relations and other objects, and in which query each place is.

It reads words only, so it is the same for every statement and dialect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import Token, TokenType

from millpond.sql.text.parse import SqlFragment
from millpond.sql.text.relation_places import alias_follows

QUERY = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE")
KINDS = ("TABLE", "VIEW", "SOURCE", "SINK", "INDEX", "FUNCTION", "MACRO")
_COMBINED = ("UNION", "INTERSECT", "EXCEPT")
_ENDS_FROM = (
    *("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "FETCH", "WINDOW", "QUALIFY", "SELECT"),
    *("RETURNING", "SET", "EMIT", "WHEN", "VALUES", "FOR", *_COMBINED),
)
_ENDS_LIST = ("TO", "FROM", "CASCADE", "RESTRICT")
_SPECIAL_CALLS = ("EXTRACT", "SUBSTRING", "TRIM", "OVERLAY", "POSITION")  # f(a FROM b)
_VERBS = (
    "TRUNCATE",
    "SUBSCRIBE",
    "DESCRIBE",
    "DESC",
    "EXPLAIN",
    "COPY",
    "UPDATE",
)  # a name may follow at once
_OF_OBJECTS = ("CREATE", "DROP", "ALTER", "COMMENT", "SHOW", "GRANT", "REVOKE")  # a kind and a name follow
_LISTING = ("DROP", "TRUNCATE", "GRANT", "REVOKE")
_WINDOWS = ("TUMBLE", "HOP", "CUMULATE", "CALENDAR", "SESSION", "DIFF")  # functions over relations
_NO_NAME = (
    *("SELECT", "WITH", "VALUES", "IF", "NOT", "ON", "SET", "LATERAL", "ONLY", "ANALYZE", "SCHEMA", "AS"),
    *("UNNEST", "TABLE", "FROM", "WHERE", "POND", "ALL", "OR", "USING", "STDIN", "STDOUT", "EXISTS"),
    *("UPDATE", "DELETE", "INSERT", "MERGE", "CONCURRENTLY", "NOTHING", "VIEW", "MATERIALIZED"),
)
_NO_ALIAS = (
    *("SET", "SINCE", "UNTIL", "AS", "CASCADE", "RESTRICT", "RENAME", "SWAP", "ALTER", "ADD", "DROP", "EMIT"),
    *(
        "APPEND",
        "ATTACH",
        "DETACH",
        "PAUSE",
        "RESUME",
        "RESTART",
        "CONTINUE",
        "DEFAULT",
        "VALUES",
        "WHEN",
        "DO",
    ),
    *("OVERRIDING", "TABLESAMPLE", "IS", "ENGINE", "PARTITION", "MATCH_CONDITION", "ASOF", "POSITIONAL"),
)


@dataclass
class Scope:
    """A query: what its relations are called, and the name by which columns must call them instead."""

    outer: Scope | None = None
    called: dict[str, str | None] = field(default_factory=dict)

    def find(self, name: str) -> str | None:
        """The name by which columns must call a relation; None to leave it as it is."""
        scope: Scope | None = self
        while scope is not None and name not in scope.called:
            scope = scope.outer
        return None if scope is None else scope.called[name]


class NamedPlaces:
    """The places of one statement."""

    def __init__(self, fragment: SqlFragment) -> None:
        self.fragment = fragment
        self.created = _created_place(fragment)
        self.scopes: list[Scope] = []
        self.objects: set[int] = set()
        self.with_names = frozenset(_with_names(fragment))
        self._walk()
        self.standing = frozenset(self._standing())

    def parts(self, place: int) -> int:
        """How many names with dots between them begin at a place?"""
        count = 1
        while self.fragment.word(place + 2 * count - 1) == "." and place + 2 * count < len(self.fragment):
            count += 1
        return count

    def has_alias(self, last: int) -> bool:
        """Has a relation, whose name ends at a place, an alias?"""
        after, word = last + 1, self.fragment.word
        if word(after) == "AS":
            return word(after + 1) not in ("OF", "(", *QUERY)
        return word(after) not in _NO_ALIAS and alias_follows(self.fragment, after)

    def _walk(self) -> None:
        fragment, word = self.fragment, self.fragment.word
        verb = word(0)
        scope, in_from, listing = Scope(), False, verb in _LISTING
        open_brackets: list[tuple[Scope, bool, str]] = []
        for place, token in enumerate(fragment.tokens):
            here, before = word(place), word(place - 1)
            if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE):
                self.scopes.append(scope)
                open_brackets.append((scope, in_from, before))
                if here == "(" and word(place + 1) in QUERY:
                    scope, in_from = Scope(scope), False
                else:
                    in_from = in_from and here == "(" and before in ("FROM", "JOIN", ",", "(")
                    if in_from:
                        self._add(place + 1)
                    if here == "(" and before in _WINDOWS:
                        self._add(place + 1)
                continue
            if token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE):
                if open_brackets:
                    scope, in_from, _ = open_brackets.pop()
                self.scopes.append(scope)
                continue
            if here in _COMBINED:
                scope = Scope(scope.outer)
            self.scopes.append(scope)
            if before == ".":
                continue
            in_from = in_from and here not in _ENDS_FROM
            listing = listing and not (place > 1 and here in _ENDS_LIST)
            if here == "FROM":
                special = bool(open_brackets) and open_brackets[-1][2] in _SPECIAL_CALLS
                in_from = before != "DISTINCT" and verb != "REVOKE" and not special
            elif here == "USING" and verb in ("DELETE", "MERGE"):
                in_from = True
            named = (
                (here in ("FROM", "USING", ",") and in_from)
                or (here == "," and listing and not open_brackets)
                or here in ("JOIN", "INTO", "ONLY", "REFERENCES", "TABLE", "HEARTBEATS")
                or (here in KINDS and verb in _OF_OBJECTS)
                or (here == "EXISTS" and before in ("IF", "NOT"))
                or (place == 0 and here in _VERBS)
                or (here == "CONCURRENTLY" and place < 4)
                or (place == 1 and here == "ANALYZE")
                or (here == "ON" and verb in ("GRANT", "REVOKE"))
                or (here == "ON" and verb == "CREATE" and "INDEX" in fragment.words[1:4])
                or (here == "WITH" and before == "SWAP")
                or (here == "COLUMN" and verb == "COMMENT")
                or (here == "CREATE" and verb == "SHOW")
                or (here == "LIKE" and verb == "CREATE" and before in ("(", ","))
            )
            if named:
                self._add(place + 1)

    def _add(self, place: int) -> None:
        """A name begins here, unless it is a keyword."""
        word = self.fragment.word
        is_keyword = word(place) in _NO_NAME and word(place + 1) != "."
        if place < len(self.fragment) and is_name(self.fragment.tokens[place]) and not is_keyword:
            self.objects.add(place)

    def _standing(self) -> Iterator[str]:
        """Names, in lower case, that stand alone as relations or aliases of relations."""
        word = self.fragment.word
        for place in sorted(self.objects):
            last = place + 2 * (self.parts(place) - 1)
            if last == place:
                yield str(self.fragment.tokens[place].text).lower()
            if self.has_alias(last):
                yield str(self.fragment.tokens[last + (2 if word(last + 1) == "AS" else 1)].text).lower()


def is_name(token: Token) -> bool:
    if token.token_type is TokenType.IDENTIFIER:
        return True
    text = str(token.text)
    return token.token_type is not TokenType.STRING and (text[:1].isalpha() or text[:1] == "_")


def _created_place(fragment: SqlFragment) -> int | None:
    """Where the name of a new object stands in CREATE … and SELECT … INTO."""
    if fragment.word(0) in ("SELECT", "WITH"):
        at = fragment.find("INTO")
        return None if at is None else at + (2 if fragment.word(at + 1) == "TABLE" else 1)
    if fragment.word(0) != "CREATE":
        return None
    at = next((n for n in range(1, min(6, len(fragment))) if fragment.word(n) in KINDS), None)
    if at is None:
        return None
    at += 2 if fragment.has(at + 1, "CONCURRENTLY") else 1
    return at + 3 if fragment.has(at, "IF", "NOT", "EXISTS") else at


def _with_names(fragment: SqlFragment) -> Iterator[str]:
    """The names of common table expressions, in lower case."""
    for place in range(1, len(fragment)):
        if fragment.word(place) != "AS":
            continue
        after = place + 1
        after += fragment.word(after) == "NOT"
        after += fragment.word(after) == "MATERIALIZED"
        if fragment.word(after) != "(" or fragment.word(after + 1) not in (*QUERY, "("):
            continue
        name = place - 1
        if fragment.word(name) == ")":
            depth = 1
            while depth and name > 0:
                name -= 1
                depth += {")": 1, "(": -1}.get(fragment.word(name), 0)
            name -= 1
        if name > 0 and fragment.word(name - 1) in ("WITH", "RECURSIVE", ","):
            yield str(fragment.tokens[name].text).lower()
