"""Rewrites errors so that they point into the user's statement and name nothing that the user did not write.

A statement is rewritten before it is bound: functions are inlined, windows and joins as of now become plain
SQL, other dialects are translated.  An error has a position in that text.  This module aligns its words with
those of the statement, and shows the same place there.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from millpond.errors import InvalidError
from millpond.kernels.sql_pictures import picture
from millpond.sql.text.as_of_now import phrase
from millpond.sql.text.parse import closest_name
from millpond.sql.text.postgres_errors import in_postgres_words, postgres_hint

TextRange = tuple[int, int]  # (first byte, length in bytes)

_WORD = re.compile(r"\w+|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\S")
_NAME = re.compile(r"\"([^\"]+)\"|'([^']+)'")
_OURS = re.compile(r"^__|^_[a-z]\b|millpond\.|^pg_|^duckdb_|^sqlite_|^pragma_|^information_schema")
_NO_HINT = re.compile(r"\bSET \w+\s*=|^\* ")
_DUCKDB = (  # DuckDB's wording -> ours
    (r"max expression depth limit of (\d+) exceeded\..*", r"the expression has more than \1 levels"),
    (r"main_memory\.main\.", ""),
    (
        r"ambiguous reference to table \"([^\"]+)\" \(duplicate alias .*",
        r'table name "\1" specified more than once',  # as PostgreSQL says it
    ),
    (r"^values list ", "table "),
    (r"\. You might need to add explicit type casts", ""),
    (r"__(?:pg|spark)\.(?:main\.)?", ""),  # functions of a dialect
    (
        r"[Mm]acro \"?([^\"()]+)\"?\(\) has multiple overloads.*",
        r"the types of the arguments of \1 are not known",
    ),
    (r"INTEGER_LITERAL", "INTEGER"),
    (r"STRING_LITERAL", "VARCHAR"),
    (
        r"table \"named\" has (\d+) columns available but (\d+) columns specified",
        r"the query gives \1 columns, and \2 names are listed",
    ),
)


_MISSING = re.compile(r'table with name "?(.+?)"? does not exist(?: because schema .*)?', re.IGNORECASE)
_OF_LITERALS = (
    "invalid input syntax for type",
    "malformed array literal",
    "ORDER BY position",
    "GROUP BY position",
)
_HINTS = (  # by what our wording says
    (
        r"^the expression has more than \d+ levels",
        "compute a part of it in a subquery: SELECT … FROM (SELECT … AS part FROM …)",
    ),
)


def in_user_words(error: InvalidError, said: str, names: Iterable[str], dialect: str = "duckdb") -> None:
    """Change an error to refer to the statement as written; `names` are those of the catalog."""
    error.step = None
    for theirs, ours in _DUCKDB:
        error.message = re.sub(theirs, ours, error.message)
    error.hint = _hint(error, list(names))
    if dialect == "postgres":
        error.message = in_postgres_words(error.message, said)
    if dialect != "duckdb":
        error.message = without_foreign_names(error.message, said)
        error.hint = postgres_hint(error.message, error.hint)
    error.args = (error.message,)
    if error.place is None:
        if "^" not in (error.detail or "") and (at := _guessed(error.message, said)) is not None:
            shown = "in the statement\n" + picture(said, at)
            error.detail = shown if error.detail is None else f"{error.detail}; {shown}"
            error.place = (said, at)
        return
    sql, at = error.place
    known = _guessed(error.message, said) if error.message.startswith(_OF_LITERALS) else None
    if (
        known is None and at is not None and sql and said.count(sql) == 1
    ):  # it already points into the user's text
        error.place = (said, (len(said[: said.index(sql)].encode()) + at[0], at[1]))
        error.detail = "in the statement\n" + picture(said, error.place[1])
        return
    place = known or (None if at is None else phrase(sql, said, at) or aligned(sql, said, at))
    place = place or _guessed(error.message, said)
    if place is None and at is not None:
        place = between(sql, said, at)
    error.detail = "in the statement\n" + picture(said, place)
    error.place = (said, place)


_CALLED = re.compile(r"no function matches the given name and argument types '(.+?)\((.*)\)'", re.DOTALL)
_INSIDE = re.compile(
    r"(\w+)(?:\(\))? can only (?:be applied|operate) (?:to|on) .*|.* during lambda function binding"
)


def without_foreign_names(message: str, said: str) -> str:
    """A message about types without the function that a call became, if the statement does not name it.

    >>> said = "no function matches the given name and argument types 'trunc(DATE)'"
    >>> without_foreign_names(said, "SELECT f(d)"), without_foreign_names(said, "SELECT trunc(d)")[:25]
    ('no function or operator takes arguments of these types: DATE', 'no function trunc takes a')
    """
    called = _CALLED.fullmatch(message)
    if called is not None:
        is_written = called[1].isidentifier() and re.search(rf"\b{called[1]}\s*\(", said, re.IGNORECASE)
        name = f"function {called[1]}" if is_written else "function or operator"
        return f"no {name} takes arguments of these types: {called[2]}"
    inside = _INSIDE.fullmatch(message)
    if inside is not None and not (inside[1] and re.search(rf"\b{inside[1]}\b", said, re.IGNORECASE)):
        return "no function or operator takes arguments of these types"
    return message


def show_call(error: InvalidError, said: str, functions: Iterable[str]) -> None:
    """Show the only call of a function of the user, whose text was bound in its place."""
    names = "|".join(re.escape(name) for name in functions)
    calls = list(re.finditer(rf"(?<!\w)(?:{names})(?=\s*\()", said, re.IGNORECASE)) if names else []
    if len(calls) == 1:
        at = len(said[: calls[0].start()].encode()), len(calls[0][0].encode())
        error.detail = "in the statement\n" + picture(said, at)
        error.place = (said, at)


def aligned(sql: str, said: str, at: TextRange) -> TextRange | None:
    """Map a position in the rewritten text to the same words in the statement.

    >>> aligned("select CAST((nope) AS INTEGER) * 2 from t", "select twice(nope) from t", (13, 4))
    (13, 4)
    """
    theirs, ours, marked, to = _matched(sql, said, at)
    found = [to[n] for n in marked if n in to]
    if not found and marked:  # the words moved: take their nearest occurrence
        words, all_words = _plain([theirs[n] for n in marked]), _plain(ours)
        starts = [n for n in range(len(ours)) if all_words[n : n + len(words)] == words]
        near = max((to[n] for n in to if n < marked[0]), default=0)
        start = min(starts, key=lambda n: abs(n - near), default=None)
        found = [] if start is None else list(range(start, start + len(words)))
    return _span(said, ours, found) if found else None


def between(sql: str, said: str, at: TextRange) -> TextRange | None:
    """Return the words of the statement that correspond to a position in the rewritten text."""
    _, ours, marked, to = _matched(sql, said, at)
    if not ours or not marked:
        return None
    before = max((to[n] for n in to if n < marked[0]), default=-1)
    after = min((to[n] for n in to if n > marked[-1] and to[n] > before), default=len(ours))
    return _span(said, ours, list(range(before + 1, after)) or [max(before, 0)])


def _matched(
    sql: str, said: str, at: TextRange
) -> tuple[list[re.Match[str]], list[re.Match[str]], list[int], dict[int, int]]:
    """Return the words of both texts, those at the position, and which words of the two texts match."""
    theirs, ours = list(_WORD.finditer(sql)), list(_WORD.finditer(said))
    start = len(sql.encode()[: at[0]].decode(errors="ignore"))
    end = start + max(1, len(sql.encode()[at[0] : at[0] + at[1]].decode(errors="ignore")))
    marked = [n for n, word in enumerate(theirs) if word.start() < end and word.end() > start]
    matcher = difflib.SequenceMatcher(None, _plain(theirs), _plain(ours), autojunk=False)
    to = {b.a + n: b.b + n for b in matcher.get_matching_blocks() for n in range(b.size)}
    return theirs, ours, marked, to


def _span(said: str, words: list[re.Match[str]], places: list[int]) -> TextRange:
    first, last = words[min(places)], words[max(places)]
    return len(said[: first.start()].encode()), len(said[first.start() : last.end()].encode())


def _plain(words: list[re.Match[str]]) -> list[str]:
    return [word[0].strip('"').lower() if word[0][0] == '"' else word[0].lower() for word in words]


def _guessed(message: str, said: str) -> TextRange | None:
    """Find in the statement what the message names in quotes, in capitals or as its first word."""
    literal = re.search(r'^(?:invalid input syntax|malformed|value) .*?"(.*)"', message, re.DOTALL)
    if literal is not None:
        quoted_text = "'" + literal[1].replace("'", "''") + "'"
        if said.count(quoted_text) == 1:
            return len(said[: said.index(quoted_text)].encode()), len(quoted_text.encode())
    if (place := re.search(r"^(?:ORDER|GROUP) BY position (\d+)", message)) is not None:
        numbers = list(re.finditer(rf"\b{place[1]}\b", said))
        return (len(said[: numbers[-1].start()].encode()), len(place[1])) if numbers else None
    message = re.sub(r' of relation ".*?"', "", message)
    quoted = [one or two for one, two in reversed(_NAME.findall(message))]
    named = list(quoted)
    if message.startswith("set operations"):
        named = ["UNION", "EXCEPT", "INTERSECT"]
    named += re.findall(r"(?:column|name) (\w+) (?:not|does)", message)
    named += re.findall(r"\b[A-Z]{2,}(?: [A-Z]{2,})+\b|\b[A-Z]{4,}\b", message)
    named += re.findall(r"^\w+", message)
    for name in named:
        word = re.escape(name).replace("_", r"[_\s]+").replace(r"\ ", r"\s+")
        found = list(re.finditer(rf"(?<!\w){word}(?!\w)", said, re.IGNORECASE))
        if found and (name in quoted or name.lower() not in _PLAIN_WORDS):
            return len(said[: found[-1].start()].encode()), len(found[-1][0].encode())
    return None


_PLAIN_WORDS = frozenset(
    ["a", "an", "the", "this", "there", "no", "one", "column", "table", "view", "in", "is"]
)


def _hint(error: InvalidError, names: list[str]) -> str | None:
    """Remove internal names from the hint; for a missing table, suggest a similar name."""
    hint = error.hint
    for pattern, ours in _HINTS:
        if re.search(pattern, error.message):
            return ours
    if hint is None or _NO_HINT.search(hint) or "configuration parameter" in error.message:
        return None
    shown = _NAME.findall(hint)
    foreign = [one or two for one, two in shown if _OURS.search(one or two)]
    if not foreign:
        return hint
    kept = [one or two for one, two in shown if not _OURS.search(one or two)]
    if kept:
        return f"{hint.partition(':')[0]}: {', '.join(kept)}"
    missing = _MISSING.search(error.message)
    return closest_name(missing[1], names) if missing else None
