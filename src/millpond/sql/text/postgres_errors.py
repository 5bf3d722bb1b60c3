"""DuckDB's messages about names and clauses in PostgreSQL's words, which its clients and users look for.

Law: the names in a message are those of the statement; a hint names what the statement could name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable

from millpond.sql.pg_catalog.pg_types import pg_type

_Match = re.Match[str]
_MISSING = re.compile(r'table with name "?(.+?)"? does not exist(?: because schema .*)?', re.IGNORECASE)
_NOT_NAMED = re.compile(r"no ((?:table or )?(?:materialized )?(?:table|view|index)) named '(.+)'")
_DROPPED = re.compile(r"\s*DROP\b", re.IGNORECASE)
_QUOTED = re.compile(r"\"([^\"]+)\"|'([^']+)'")
_WANTED = re.compile(r'"([^"]+)"|column (?:\w+\.)?(\w+) does not|^function (\w+)')
_CLAUSES = {"GROUP BY clause": "GROUP BY", "WHERE clause": "WHERE", "HAVING clause": "HAVING"}


def in_postgres_words(message: str, said: str) -> str:
    """The message of an error, which begins with a small letter, in PostgreSQL's words.

    >>> in_postgres_words('referenced column "x" not found in FROM clause', "SELECT x FROM t")
    'column "x" does not exist'
    >>> in_postgres_words("no table or view named 'x'", "DELETE FROM x")
    'relation "x" does not exist'
    >>> in_postgres_words("no index named 'x'", "DROP INDEX x")
    'index "x" does not exist'
    """
    for pattern, written in _WORDS:
        found = pattern.fullmatch(message)
        if found is not None:
            return found.expand(written) if isinstance(written, str) else written(found, said)
    return message


def postgres_hint(message: str, hint: str | None) -> str | None:
    """The hint of an error of DuckDB: the name that was meant, if one is close."""
    if hint is None:
        return None
    if hint.startswith("Either add it to the GROUP BY list"):
        return "add it to GROUP BY, or compute one value of the group, for example the smallest"
    if not hint.startswith(("Candidate", "Did you mean")):
        return hint
    if hint.startswith(("Candidate functions", "Candidate macros")):
        return "cast the arguments to types that it takes"
    wanted = _WANTED.search(message)
    known = [(one or two).removeprefix("main.") for one, two in _QUOTED.findall(hint)]
    if wanted is None or not known:
        return None
    name = next(part for part in wanted.groups() if part)
    near = difflib.get_close_matches(name.lower(), known, 1, 0.5)
    return f'did you mean "{near[0]}"?' if near else None


def _relation(found: _Match, said: str) -> str:
    what = found[1] if _DROPPED.match(said) else "relation"
    return f'{what} "{found[2]}" does not exist'


def _without_from(found: _Match, said: str) -> str:
    """A table that FROM has under another name is not missing."""
    named = re.escape(found[1])
    if re.search(rf"\b(?:from|join|update|into|using|,)\s*(?:\w+\.)?\"?{named}\b", said, re.IGNORECASE):
        return f'invalid reference to FROM-clause entry for table "{found[1]}"'
    return f'missing FROM-clause entry for table "{found[1]}"'


def _set_operation(found: _Match, said: str) -> str:
    words = re.findall(r"\b(union|intersect|except)\b", said, re.IGNORECASE)
    return f"each {words[0].upper() if words else 'UNION'} query must have the same number of columns"


def _columns_of_subquery(found: _Match, said: str) -> str:
    return "subquery must return only one column"


def _negative(found: _Match, said: str) -> str:
    word = "OFFSET" if re.search(r"\boffset\s*-", said, re.IGNORECASE) else "LIMIT"
    return f"{word} must not be negative"


_TARGET = re.compile(
    r"\s*(?:insert\s+into|update(?:\s+only)?|alter\s+table(?:\s+if\s+exists)?(?:\s+only)?|merge\s+into)\s+"
    r"(?:\w+\.)?\"?(\w+)",
    re.IGNORECASE,
)


def _no_target_column(found: _Match, said: str) -> str:
    """A column that is missing in the table that a statement changes."""
    target = _TARGET.match(said)
    if target is None or re.search(rf"on\s+conflict\s*\([^)]*\b{re.escape(found[1])}\b", said, re.IGNORECASE):
        return f'column "{found[1]}" does not exist'
    return f'column "{found[1]}" of relation "{target[1]}" does not exist'


def _counts_of_insert(found: _Match, said: str) -> str:
    more, fewer = (
        ("expressions", "target columns")
        if int(found[2]) > int(found[1])
        else ("target columns", "expressions")
    )
    return f"INSERT has more {more} than {fewer}"


def _cast(found: _Match, said: str) -> str:
    return f"cannot cast type {pg_type(found[1])} to {pg_type(found[2])}"


def _place_in_list(clause: str) -> Callable[[_Match, str], str]:
    def written(found: _Match, said: str) -> str:
        numbers = [
            number
            for number in re.findall(r"\b\d+\b", said[said.lower().rfind(clause.lower()) :])
            if not int(found[1]) <= int(number) <= int(found[2])
        ]
        return f"{clause} position {numbers[0] if numbers else '0'} is not in select list"

    return written


def _misplaced(found: _Match, said: str) -> str:
    clause = _CLAUSES.get(found[1], found[1].removesuffix(" clause"))
    if clause == "WHERE" and re.search(r"\bwhere\b", said, re.IGNORECASE) is None:
        clause = "JOIN conditions"
    return f"{'window' if 'window' in found[2] else 'aggregate'} functions are not allowed in {clause}"


_WORDS: tuple[tuple[re.Pattern[str], str | Callable[[_Match, str], str]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), written)
    for pattern, written in (
        (_MISSING.pattern, r'relation "\1" does not exist'),
        (_NOT_NAMED.pattern, _relation),
        (r'referenced column "(.+)" not found in FROM clause', r'column "\1" does not exist'),
        (r'referenced column "(.+)" was not found because .*', r'column "\1" does not exist'),
        (r'referenced table "(.+)" not found', _without_from),
        (r'table "(.+)" does not have a column named "(.+)"', r"column \1.\2 does not exist"),
        (r'values list "(.+)" does not have a column named "(.+)"', r"column \1.\2 does not exist"),
        (r'ambiguous reference to column name "(.+?)".*', r'column reference "\1" is ambiguous'),
        (
            r'column "?(.+?)"? must appear in the GROUP BY clause or must be part of an aggregate function',
            r'column "\1" must appear in the GROUP BY clause or be used in an aggregate function',
        ),
        (r"((?:WHERE|GROUP BY|HAVING) clause|JOIN conditions?) cannot contain (aggregates|window functions)",
         _misplaced),
        (r"subquery returns \d+ columns - expected 1", _columns_of_subquery),
        (r"set operations can only apply to .* the same number of result columns", _set_operation),
        (
            r'column "(.+)" does not exist on (left|right) side of join',
            r'column "\1" specified in USING clause does not exist in \2 table',
        ),
        (r"ORDER term out of range - should be between (\d+) and (\d+)", _place_in_list("ORDER BY")),
        (r"GROUP BY term out of range - should be between (\d+) and (\d+)", _place_in_list("GROUP BY")),
        (r"LIMIT/OFFSET cannot be negative", _negative),
        (r'column "(.+)" referenced that exists in the SELECT clause .*', r'column "\1" does not exist'),
        (r"(\w+) is not an aggregate function",
         r"OVER specified, but \1 is not a window function nor an aggregate function"),
        (r'table ".+" does not have a column with name "(.+)"', _no_target_column),
        (r"referenced update column (.+) not found in table", _no_target_column),
        (r"table '.+' has no column '(.+)'", _no_target_column),
        (r"'(?P<table>.+)' has no column '(.+)'", r'column "\2" does not exist'),
        (r'duplicate column name "(.+)" in INSERT', r'column "\1" specified more than once'),
        (r"column '(.+)' is defined twice", r'column "\1" specified more than once'),
        (r"column name/value mismatch for insert .* expected (\d+) columns but (\d+) values were supplied",
         _counts_of_insert),
        (r"could not perform assignment, expected \d+ values, got \d+",
         "number of columns does not match number of values"),
        (r"unimplemented type for cast \((.+) -> (.+?)\)(?: when casting .*)?", _cast),
        (r"no type named (.+)", r'type "\1" does not exist'),
        (r"(VALUES lists must all be the same length), .*", r"\1"),
        (r'could not ORDER BY column "(.+)": .*', r'column "\1" does not exist'),
        (r"(invalid input syntax for type json): .*", r"\1"),
        (r"type with name (\S+) does not exist", r'type "\1" does not exist'),
    )
)  # fmt: skip
