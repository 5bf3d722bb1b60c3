"""Nested types in angle brackets: struct<x int, y text>, array<int>, map<text, array<int>>.

DuckDB writes them with parentheses.  This module parses the types itself: a general
translator drops what it does not understand, and a field without its type is a
different type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from millpond.sql.binding.types import quoted
from millpond.sql.text.parse import SqlFragment, tokens_of

NESTED = ("STRUCT", "ROW", "ARRAY", "LIST", "MAP")
Leaf = Callable[[SqlFragment], str]  # returns the type named by a fragment without angle brackets
_ANGLED = re.compile(r"\b(?:struct|row|array|list|map)\s*<", re.IGNORECASE)


def has_angles(fragment: SqlFragment) -> bool:
    """Does the fragment contain a nested type in angle brackets?"""
    return any(opens(fragment, n) for n in range(len(fragment)))


def opens(fragment: SqlFragment, place: int) -> bool:
    """Does an angle bracket of a nested type open here?"""
    return fragment.word(place) in ("<", "<>") and fragment.word(place - 1) in NESTED


def read_type(fragment: SqlFragment, leaf: Leaf) -> str:
    """Return the type as DuckDB writes it; anything that does not fit is refused with its position."""
    word = fragment.word(0)
    if word not in NESTED or fragment.word(1) not in ("<", "("):
        if has_angles(fragment):
            fragment.fail("this type cannot be read", 0, "write array<int>, map<text, int> or struct<x int>")
        return leaf(fragment)
    inner, end = _inside(fragment, 1)
    parts = list(_parts(inner))
    made: str
    if word in ("STRUCT", "ROW"):
        if not inner.tokens:
            fragment.fail(f"{word.lower()} needs a field", 0, "write struct<name type, …>")
        made = f"STRUCT({', '.join(_field(part, inner, leaf) for part in parts)})"
        for n, part in enumerate(parts):
            if any(part.tokens[0].text.lower() == other.tokens[0].text.lower() for other in parts[:n]):
                part.fail(f"field {part.tokens[0].text!r} is there twice")
    else:
        wanted = 2 if word == "MAP" else 1
        if len(parts) != wanted or not all(part.tokens for part in parts):
            what = "two types, of keys and of values" if word == "MAP" else "one type, of its elements"
            fragment.fail(
                f"{word.lower()} takes {what}", 0, "map<text, int>" if word == "MAP" else "array<int>"
            )
        kinds = [read_type(part, leaf) for part in parts]
        made = f"MAP({', '.join(kinds)})" if word == "MAP" else f"{kinds[0]}[]"
    return made + _lists(fragment, end)


def _field(part: SqlFragment, inner: SqlFragment, leaf: Leaf) -> str:
    """Read one field of a struct: `name type`, or `name: type` as in Spark and Hive."""
    if not part.tokens:
        inner.fail("a field of the struct is missing", 0, "write struct<name type, …>")
    at = 2 if part.word(1) == ":" else 1
    end = next((n for n in range(at, len(part)) if part.word(n) == "COMMENT"), len(part))
    if end == at:
        part.fail("a field of a struct needs a name and a type", 0, "write struct<name type, …>")
    for n in range(at, end):
        if part.word(n) in ("NOT", "NULL", "DEFAULT", "PRIMARY"):
            part.fail(
                f"{part.word(n)} is not supported inside a type", n, "the columns of a table can have it"
            )
    return f"{quoted(str(part.tokens[0].text))} {read_type(part.part(at, end), leaf)}"


def _lists(fragment: SqlFragment, at: int) -> str:
    """Read the [] and [3] that follow a type."""
    made = ""
    while at < len(fragment):
        number = at + 2 if fragment.word(at + 1).isdecimal() else at + 1
        if fragment.word(at) != "[" or fragment.word(number) != "]":
            fragment.fail("nothing more should stand behind the type", at)
        made += f"[{fragment.word(at + 1)}]" if number == at + 2 else "[]"
        at = number + 1
    return made


def _inside(fragment: SqlFragment, place: int) -> tuple[SqlFragment, int]:
    """Return what is inside the brackets that open here, angle or round, and the place after them."""
    if fragment.word(place) == "(":
        return fragment.bracket(place)
    depth = 0
    for n in range(place, len(fragment)):
        word = fragment.word(n)
        if word == "<" and fragment.word(n - 1) in NESTED:
            depth += 1
        elif word and not word.strip(">"):  # >> may be one token
            depth -= len(word)
        if depth <= 0:
            return fragment.part(place + 1, n), n + 1
    fragment.fail("the bracket that opens here is never closed", place)
    raise AssertionError


def _parts(fragment: SqlFragment) -> Iterator[SqlFragment]:
    """Split the fragment at commas outside all brackets."""
    start = 0
    for n in fragment.outside(types=True):
        if fragment.word(n) == ",":
            yield fragment.part(start, n)
            start = n + 1
    yield fragment.part(start)


def without_angles(sql: str, dialect: str, leaf: Leaf) -> str:
    """Rewrite a query's casts to types in angle brackets with parentheses."""
    if not _ANGLED.search(sql):
        return sql
    fragment = SqlFragment(sql, tokens_of(sql, dialect), dialect)
    edits = []
    for n in range(len(fragment)):
        if opens(fragment, n) and fragment.word(n - 2) in ("AS", "::"):
            _, end = _inside(fragment, n)
            while fragment.word(end) == "[" and "]" in (fragment.word(end + 1), fragment.word(end + 2)):
                end += 2 if fragment.word(end + 1) == "]" else 3
            made = read_type(fragment.part(n - 1, end), leaf)
            edits.append((fragment.tokens[n - 1].start, fragment.tokens[end - 1].end + 1, made))
    return fragment.rewritten(edits).text if edits else sql
