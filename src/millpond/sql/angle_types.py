"""Nested types in angle brackets: struct<x int, y text>, array<int>, map<text, array<int>>.

DuckDB writes them with round brackets.  The reader here takes the types apart itself:
a general translator drops what it does not understand, and a field without its type
is another type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from millpond.sql.parse import Piece, tokens_of
from millpond.sql.types import quoted

NESTED = ("STRUCT", "ROW", "ARRAY", "LIST", "MAP")
Leaf = Callable[[Piece], str]  # the type that a piece without angle brackets names
_ANGLED = re.compile(r"\b(?:struct|row|array|list|map)\s*<", re.IGNORECASE)


def has_angles(piece: Piece) -> bool:
    """Is there a nested type in angle brackets among these words?"""
    return any(opens(piece, n) for n in range(len(piece)))


def opens(piece: Piece, place: int) -> bool:
    """Does a bracket of a nested type open here?"""
    return piece.word(place) in ("<", "<>") and piece.word(place - 1) in NESTED


def read_type(piece: Piece, leaf: Leaf) -> str:
    """The type as DuckDB writes it; whatever does not fit is refused with its place."""
    word = piece.word(0)
    if word not in NESTED or piece.word(1) not in ("<", "("):
        if has_angles(piece):
            piece.fail("this type cannot be read", 0, "write array<int>, map<text, int> or struct<x int>")
        return leaf(piece)
    inner, end = _inside(piece, 1)
    parts = list(_parts(inner))
    made: str
    if word in ("STRUCT", "ROW"):
        if not inner.tokens:
            piece.fail(f"{word.lower()} needs a field", 0, "write struct<name type, …>")
        made = f"STRUCT({', '.join(_field(part, inner, leaf) for part in parts)})"
        for n, part in enumerate(parts):
            if any(part.tokens[0].text.lower() == other.tokens[0].text.lower() for other in parts[:n]):
                part.fail(f"field {part.tokens[0].text!r} is there twice")
    else:
        wanted = 2 if word == "MAP" else 1
        if len(parts) != wanted or not all(part.tokens for part in parts):
            what = "two types, of keys and of values" if word == "MAP" else "one type, of its elements"
            piece.fail(f"{word.lower()} takes {what}", 0, "map<text, int>" if word == "MAP" else "array<int>")
        kinds = [read_type(part, leaf) for part in parts]
        made = f"MAP({', '.join(kinds)})" if word == "MAP" else f"{kinds[0]}[]"
    return made + _lists(piece, end)


def _field(part: Piece, inner: Piece, leaf: Leaf) -> str:
    """One field of a struct: `name type`, or `name: type` as Spark and Hive write it."""
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


def _lists(piece: Piece, at: int) -> str:
    """[] and [3] behind a type."""
    made = ""
    while at < len(piece):
        number = at + 2 if piece.word(at + 1).isdecimal() else at + 1
        if piece.word(at) != "[" or piece.word(number) != "]":
            piece.fail("nothing more should stand behind the type", at)
        made += f"[{piece.word(at + 1)}]" if number == at + 2 else "[]"
        at = number + 1
    return made


def _inside(piece: Piece, place: int) -> tuple[Piece, int]:
    """What stands in the brackets that open here, angle or round, and the place behind them."""
    if piece.word(place) == "(":
        return piece.bracket(place)
    depth = 0
    for n in range(place, len(piece)):
        word = piece.word(n)
        if word == "<" and piece.word(n - 1) in NESTED:
            depth += 1
        elif word and not word.strip(">"):  # >> may be one word
            depth -= len(word)
        if depth <= 0:
            return piece.part(place + 1, n), n + 1
    piece.fail("the bracket that opens here is never closed", place)
    raise AssertionError


def _parts(piece: Piece) -> Iterator[Piece]:
    """The parts between commas that stand in no bracket."""
    start = 0
    for n in piece.outside(types=True):
        if piece.word(n) == ",":
            yield piece.part(start, n)
            start = n + 1
    yield piece.part(start)


def without_angles(sql: str, dialect: str, leaf: Leaf) -> str:
    """A query with its casts to types in angle brackets written with round ones."""
    if not _ANGLED.search(sql):
        return sql
    piece = Piece(sql, tokens_of(sql, dialect), dialect)
    edits = []
    for n in range(len(piece)):
        if opens(piece, n) and piece.word(n - 2) in ("AS", "::"):
            _, end = _inside(piece, n)
            while piece.word(end) == "[" and "]" in (piece.word(end + 1), piece.word(end + 2)):
                end += 2 if piece.word(end + 1) == "]" else 3
            made = read_type(piece.part(n - 1, end), leaf)
            edits.append((piece.tokens[n - 1].start, piece.tokens[end - 1].end + 1, made))
    return piece.rewritten(edits).text if edits else sql
