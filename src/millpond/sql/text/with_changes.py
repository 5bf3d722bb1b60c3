"""WITH before INSERT, UPDATE, DELETE and MERGE: the same change without it.

An INSERT takes the WITH into its query; the others get the query in place of each name:

    WITH t AS (SELECT 1 AS a) DELETE FROM y USING t WHERE y.a = t.a
    DELETE FROM y USING (WITH t AS (SELECT 1 AS a) SELECT * FROM t) AS t WHERE y.a = t.a

Law: the change means the same, since the queries of a change give the same rows wherever they stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import TokenType

if TYPE_CHECKING:
    from millpond.sql.text.parse import SqlFragment

_CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE")
_BEFORE = ("FROM", "JOIN", "USING")  # what stands before a relation, and begins a list of them
_ENDS = frozenset(
    ("WHERE", "SET", "ON", "GROUP", "ORDER", "SELECT", "WHEN", "RETURNING", "HAVING", "LIMIT", "VALUES")
)
_QUERIES = ("SELECT", "WITH", "VALUES", "TABLE", "FROM")  # the words with which they begin
_NO_ALIAS = _ENDS | {"LEFT", "RIGHT", "FULL", "INNER", "CROSS", "JOIN", "NATURAL", "USING", "UNION", "EXCEPT"}


def without_with(fragment: SqlFragment) -> SqlFragment:
    """A change that begins with WITH as one that does not; any other statement as it is."""
    verb = next((n for n in fragment.outside() if fragment.word(n) in _CHANGES), None)
    names = list(_queries(fragment, len(fragment) if verb is None else verb))
    for _, start in names:
        if fragment.word(start) in _CHANGES:
            hint = (
                "send them one after the other, in a transaction; RETURNING gives the rows that were changed"
            )
            fragment.fail("a change cannot be part of WITH", start, hint)
    if verb is None:
        return fragment
    before = fragment.text[fragment.start : fragment.tokens[verb].start]
    edits = [(fragment.start, fragment.tokens[verb].start, "")]
    inlined = verb
    if fragment.word(verb) == "INSERT":
        place = _query_of_insert(fragment, verb)
        start = fragment.tokens[place].start if place < len(fragment) else 0
        if start and not fragment.has(place, "DEFAULT", "VALUES"):
            edits.append((start, start, before))
        conflict = fragment.find("ON", "CONFLICT", start=verb)
        inlined = len(fragment) if conflict is None else conflict
    edits += _inlined(fragment, inlined, before, {name for name, _ in names})
    return replace(fragment.rewritten(edits), said=fragment.said or fragment.sql)


def _queries(fragment: SqlFragment, end: int) -> Iterator[tuple[str, int]]:
    """The names of WITH in lower case, and the places where their queries begin."""
    at = 2 if fragment.word(1) == "RECURSIVE" else 1
    while at < end:
        name = fragment.tokens[at].text.lower()
        at += 1
        if fragment.word(at) == "(":
            _, at = fragment.bracket(at)
        while at < end and fragment.word(at) != "(":  # AS, or AS NOT MATERIALIZED
            at += 1
        if at >= end:
            return
        yield name, at + 1
        _, at = fragment.bracket(at)
        if at >= end or fragment.tokens[at].token_type is not TokenType.COMMA:
            return
        at += 1


def _query_of_insert(fragment: SqlFragment, verb: int) -> int:
    at = verb + 3  # INSERT INTO name
    while fragment.word(at) == ".":
        at += 2
    at = behind_columns(fragment, at)
    return at + 3 if fragment.word(at) == "OVERRIDING" else at


def behind_columns(fragment: SqlFragment, at: int) -> int:
    """The place behind the alias and the columns of INSERT INTO name, which both may be missing."""
    if fragment.word(at) == "AS":
        at += 2
    if fragment.word(at) == "(" and fragment.word(at + 1) not in _QUERIES:
        _, at = fragment.bracket(at)
    return at


def _inlined(
    fragment: SqlFragment, start: int, before: str, names: set[str]
) -> Iterator[tuple[int, int, str]]:
    in_list = [False]
    for place in range(start, len(fragment)):
        token, word = fragment.tokens[place], fragment.word(place)
        if word == "(":
            in_list.append(False)
        elif word == ")":
            in_list = in_list[:-1] or [False]
        elif word in _BEFORE:
            in_list[-1] = True
        elif word in _ENDS:
            in_list[-1] = False
        is_first = fragment.word(place - 1) in _BEFORE
        is_next = in_list[-1] and fragment.tokens[place - 1].token_type is TokenType.COMMA
        if (
            (is_first or is_next)
            and token.text.lower() in names
            and fragment.word(place + 1) not in (".", "(")
        ):
            text = f"({before}SELECT * FROM {fragment.text[token.start : token.end + 1]})"
            yield (
                token.start,
                token.end + 1,
                text if _has_alias(fragment, place + 1) else f"{text} AS {token.text}",
            )


def _has_alias(fragment: SqlFragment, at: int) -> bool:
    if at >= len(fragment):
        return False
    kind = fragment.tokens[at].token_type
    if fragment.word(at) == "AS" or kind is TokenType.IDENTIFIER:
        return True
    return fragment.word(at).isidentifier() and fragment.word(at) not in _NO_ALIAS
