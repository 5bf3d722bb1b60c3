"""Errors in the user's words: the place in the statement that was written, and no name that was not.

A statement is rewritten before it is bound: functions are inlined, windows and joins as of now become plain
SQL, other dialects are translated.  What is refused is a place in that text.  Its words are aligned with
those of the statement, and the same place is shown there.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from millpond.errors import InvalidError
from millpond.operators.expressions import picture
from millpond.sql.as_of_now import phrase
from millpond.sql.parse import near_miss

Place = tuple[int, int]  # (byte, bytes)

_WORD = re.compile(r"\w+|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\S")
_NAME = re.compile(r"\"([^\"]+)\"|'([^']+)'")
_OURS = re.compile(r"^__|^_[a-z]\b|millpond\.|^pg_|^duckdb_|^sqlite_|^pragma_|^information_schema")
_NO_HINT = re.compile(r"\bSET \w+\s*=|^\* ")
_DUCKDB = (  # its words, and ours
    (r"^values list ", "table "),
    (r"\. You might need to add explicit type casts", ""),
    (r"INTEGER_LITERAL", "INTEGER"),
    (r"STRING_LITERAL", "VARCHAR"),
    (
        r"table \"named\" has (\d+) columns available but (\d+) columns specified",
        r"the query gives \1 columns, and \2 names are listed",
    ),
)


def in_user_words(error: InvalidError, said: str, names: Iterable[str]) -> None:
    """Change an error to tell of the statement as it was written; `names` are those of the catalog."""
    error.step = None
    for theirs, ours in _DUCKDB:
        error.message = re.sub(theirs, ours, error.message)
    error.args = (error.message,)
    error.hint = _hint(error, list(names))
    if error.place is None:
        if "^" not in (error.detail or "") and (at := _guessed(error.message, said)) is not None:
            shown = "in the statement\n" + picture(said, at)
            error.detail = shown if error.detail is None else f"{error.detail}; {shown}"
        return
    sql, at = error.place
    if at is not None and sql in said:
        return  # it is the user's text already
    place = None if at is None else phrase(sql, said, at) or aligned(sql, said, at)
    place = place or _guessed(error.message, said)
    if place is None and at is not None:
        place = between(sql, said, at)
    error.detail = "in the statement\n" + picture(said, place)


def aligned(sql: str, said: str, at: Place) -> Place | None:
    """The place in a statement where the words stand that a place in its rewritten text marks.

    >>> aligned("select CAST((nope) AS INTEGER) * 2 from t", "select twice(nope) from t", (13, 4))
    (13, 4)
    """
    theirs, ours, marked, to = _matched(sql, said, at)
    found = [to[n] for n in marked if n in to]
    if not found and marked:  # moved: the same words, as near as they are
        words, all_words = _plain([theirs[n] for n in marked]), _plain(ours)
        starts = [n for n in range(len(ours)) if all_words[n : n + len(words)] == words]
        near = max((to[n] for n in to if n < marked[0]), default=0)
        start = min(starts, key=lambda n: abs(n - near), default=None)
        found = [] if start is None else list(range(start, start + len(words)))
    return _span(said, ours, found) if found else None


def between(sql: str, said: str, at: Place) -> Place | None:
    """What stands in a statement for a marked place of its rewritten text, between equal words."""
    _, ours, marked, to = _matched(sql, said, at)
    if not ours or not marked:
        return None
    before = max((to[n] for n in to if n < marked[0]), default=-1)
    after = min((to[n] for n in to if n > marked[-1] and to[n] > before), default=len(ours))
    return _span(said, ours, list(range(before + 1, after)) or [max(before, 0)])


def _matched(
    sql: str, said: str, at: Place
) -> tuple[list[re.Match[str]], list[re.Match[str]], list[int], dict[int, int]]:
    """The words of both texts, those that are marked, and which word of the one is which of the other."""
    theirs, ours = list(_WORD.finditer(sql)), list(_WORD.finditer(said))
    start = len(sql.encode()[: at[0]].decode(errors="ignore"))
    end = start + max(1, len(sql.encode()[at[0] : at[0] + at[1]].decode(errors="ignore")))
    marked = [n for n, word in enumerate(theirs) if word.start() < end and word.end() > start]
    matcher = difflib.SequenceMatcher(None, _plain(theirs), _plain(ours), autojunk=False)
    to = {b.a + n: b.b + n for b in matcher.get_matching_blocks() for n in range(b.size)}
    return theirs, ours, marked, to


def _span(said: str, words: list[re.Match[str]], places: list[int]) -> Place:
    first, last = words[min(places)], words[max(places)]
    return len(said[: first.start()].encode()), len(said[first.start() : last.end()].encode())


def _plain(words: list[re.Match[str]]) -> list[str]:
    return [word[0].strip('"').lower() if word[0][0] == '"' else word[0].lower() for word in words]


def _guessed(message: str, said: str) -> Place | None:
    """Where something stands that the message names, in quotes or in capitals, or as its first word."""
    named = [one or two for one, two in reversed(_NAME.findall(message))]
    if message.startswith("set operations"):
        named = ["UNION", "EXCEPT", "INTERSECT"]
    named += re.findall(r"(?:column|name) (\w+) (?:not|does)", message)
    named += re.findall(r"\b[A-Z]{2,}(?: [A-Z]{2,})+\b|\b[A-Z]{4,}\b", message)
    named += re.findall(r"^\w+", message)
    for name in named:
        word = re.escape(name).replace("_", r"[_\s]+").replace(r"\ ", r"\s+")
        found = list(re.finditer(rf"(?<!\w){word}(?!\w)", said, re.IGNORECASE))
        if found and name.lower() not in _PLAIN_WORDS:
            return len(said[: found[-1].start()].encode()), len(found[-1][0].encode())
    return None


_PLAIN_WORDS = frozenset(
    ["a", "an", "the", "this", "there", "no", "one", "column", "table", "view", "in", "is"]
)


def _hint(error: InvalidError, names: list[str]) -> str | None:
    """The hint without names that are not the user's; for a missing table, one with nearly its name."""
    hint = error.hint
    if hint is None or _NO_HINT.search(hint) or "configuration parameter" in error.message:
        return None
    shown = _NAME.findall(hint)
    foreign = [one or two for one, two in shown if _OURS.search(one or two)]
    if not foreign:
        return hint
    kept = [one or two for one, two in shown if not _OURS.search(one or two)]
    if kept:
        return f"{hint.partition(':')[0]}: {', '.join(kept)}"
    missing = re.search(r"table with name (\S+) does not exist", error.message, re.IGNORECASE)
    return near_miss(missing[1], names) if missing else None
