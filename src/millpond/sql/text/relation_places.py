"""Where a query lists relations: after FROM and JOIN, between commas, and in brackets around joins."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import TokenType

from millpond.sql.text.duckdb_parser import parser
from millpond.sql.text.parse import SqlFragment

# Keywords that begin a clause of a query; FROM and JOIN list relations.
_PARTS = (
    *("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH"),
    *("VALUES", "TABLESAMPLE", "UNION", "EXCEPT", "INTERSECT", "JOIN", "ON", "USING"),
)


def listed_from(fragment: SqlFragment, place: int) -> int | None:
    """Return the start of the relation that ends before a place; None after WHERE, ON and similar."""
    depth, comma = 0, None
    for at in range(place - 1, -1, -1):
        kind = fragment.tokens[at].token_type
        if kind in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE):
            depth += 1
        elif kind in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE):
            depth -= 1
            if depth < 0:  # parentheses around joined tables
                return _listed_in_bracket(fragment, at, comma, place)
        elif depth == 0 and kind is TokenType.COMMA:
            comma = at if comma is None else comma
        elif depth == 0 and fragment.word(at) in _PARTS and fragment.word(at - 1) != ".":
            word = fragment.word(at)
            compared = (
                word == "FROM"
                and fragment.word(at - 1) == "DISTINCT"
                and fragment.word(at - 2) in ("IS", "NOT")
            )
            if word in ("FROM", "JOIN") and not compared:
                return at + 1 if comma is None else comma + 1
            return comma + 1 if word in ("ON", "USING") and comma is not None else None
    return None


def _listed_in_bracket(fragment: SqlFragment, opened: int, comma: int | None, place: int) -> int | None:
    """Do the same inside parentheses in place of a relation: `FROM (t AS OF EPOCH 1 JOIN u …)`."""
    if comma is None and fragment.word(opened - 1) in ("FROM", "JOIN", ",", "("):
        return opened + 1 if opened + 1 < place else None
    return None


def alias_follows(fragment: SqlFragment, place: int) -> bool:
    if fragment.word(place) == "AS":
        return True
    token = fragment.tokens[place] if place < len(fragment) else None
    if token is None or token.token_type is TokenType.STRING:
        return False
    if token.token_type is TokenType.IDENTIFIER:
        return True
    plain = token.text[:1].isalpha() or token.text[:1] == "_"
    return plain and token.text.lower() not in _no_aliases()


@lru_cache(maxsize=1)
def _no_aliases() -> frozenset[str]:
    """Return the words that cannot name a relation without quotes."""
    sql = "select keyword_name from duckdb_keywords() where keyword_category in ('reserved', 'type_function')"
    return frozenset(row[0] for row in parser().execute(sql).fetchall())


def free_name(fragment: SqlFragment, name: str) -> str:
    """Return a name that does not occur in the query."""
    while name in fragment.text.lower():
        name = f"{name}_"
    return name
