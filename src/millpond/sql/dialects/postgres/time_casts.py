"""Casts of texts to dates and times: a literal is read now, a column by a macro.

Law: a literal is given to DuckDB in the one form that it reads as PostgreSQL does; a text without a zone
keeps having none.
"""

from __future__ import annotations

import re

from millpond.errors import InvalidError
from millpond.kernels.postgres.time_casts import plain_text
from millpond.kernels.postgres.time_input import CLOCK_WORDS, ReadTime, read_time
from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.dialects.postgres.tree_parts import become, expression

# PostgreSQL's types and the macros that read them, by the names that a cast may give.
_KINDS = {
    "date": ("date", "date_in"),
    "timestamp": ("timestamp", "timestamp_in"),
    "timestamp without time zone": ("timestamp", "timestamp_in"),
    "timestamptz": ("timestamp with time zone", "timestamptz_in"),
    "timestamp with time zone": ("timestamp with time zone", "timestamptz_in"),
    "time": ("time", "time_in"),
    "time without time zone": ("time", "time_in"),
    "timetz": ("time with time zone", "timetz_in"),
    "time with time zone": ("time with time zone", "timetz_in"),
}
_DAY = r"(?!0000)\d{4}-\d\d-\d\d"
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_ZONE = r"(?:[+-](?:0\d|1[0-5])(?::[0-5]\d)?)"
# What DuckDB reads as PostgreSQL does.
_PLAIN = {
    "date": re.compile(_DAY),
    "timestamp": re.compile(rf"{_DAY}(?:[ T]{_CLOCK})?"),
    "timestamp with time zone": re.compile(rf"{_DAY}(?:[ T]{_CLOCK}(?:{_ZONE}|Z)?)?"),
    "time": re.compile(_CLOCK),
    "time with time zone": re.compile(_CLOCK + _ZONE),
}
_DIGITS = re.compile(r"\d\D+\d|[A-Za-z]\W*\d|\d\W*[A-Za-z]|\d{8}")  # no time is a number only, or words
_ALIKE = re.compile(
    r"(?!0000)\d{4}-\d\d?-\d\d?(?:[ T]\d\d?:\d\d(?::\d\d(?:\.\d{1,6})?)?)?|\d\d:\d\d:\d\d(?:\.\d{1,6})?"
)
_LENGTH_MAX = 60
_NOW = {
    "date": "CAST(now() AS DATE)",
    "timestamp": "CAST(now() AS TIMESTAMP)",
    "timestamp with time zone": "now()",
    "time": "CAST(now() AS TIME)",
}
_DAYS_LATER = {"today": 0, "tomorrow": 1, "yesterday": -1}


def reader_of(name: str) -> str | None:
    """The macro that reads texts of a type; None for a type that is no date or time."""
    return _KINDS[name][1] if name in _KINDS else None


def is_plain(text: str, name: str) -> bool:
    """Does DuckDB read this text of a date or time as PostgreSQL does?"""
    return _PLAIN[_KINDS[name][0]].fullmatch(text) is not None


def may_be_time(text: str) -> bool:
    """Is this a date or time that DuckDB does not read, but PostgreSQL does, beside a column of that type?

    >>> may_be_time("Jan 8 1999"), may_be_time("2024-01-08"), may_be_time("v1.2"), may_be_time("15 items")
    (True, False, False, False)
    """
    if not _DIGITS.search(text) or len(text) > _LENGTH_MAX or _ALIKE.fullmatch(text):
        return False
    for kind in ("timestamp with time zone", "time with time zone"):
        try:
            return read_time(text, kind).word is None
        except ValueError:
            continue
    return False


def read_literal(node: Tree, name: str) -> bool:
    """Change a cast of a literal in place; was it necessary?"""
    kind = _KINDS[name][0]
    literal = node["child"]["literal"]
    text = str(literal["text"])
    if is_plain(text, name):
        return False
    found = literal_of(text, kind)
    if found.word in CLOCK_WORDS:
        become(node, _by_clock(found, kind, text))
    else:
        literal["text"] = plain_text(found, kind)
    return True


def literal_of(text: str, kind: str) -> ReadTime:
    try:
        return read_time(text, kind)
    except ValueError as error:
        raise InvalidError(str(error), hint="write it as 2024-12-31 or 2024-12-31 23:59:59+00") from None


def _by_clock(found: ReadTime, kind: str, text: str) -> Tree:
    """'now' and 'tomorrow' as the expressions that they stand for."""
    if found.word == "now" and kind in _NOW:
        return expression(_NOW[kind])
    days = _DAYS_LATER.get(str(found.word))
    if days is None or found.zone is not None:
        raise InvalidError(
            f'the literal "{text}" of type {kind} is not supported', hint="write now() and a cast"
        )
    day = f"CAST(now() AS DATE) + {days}" if days else "CAST(now() AS DATE)"
    if kind == "date":
        return expression(day)
    clock = f" + to_microseconds({found.us})" if found.us else ""
    name = "TIMESTAMP" if kind == "timestamp" else "TIMESTAMPTZ"
    return expression(f"CAST(CAST({day} AS TIMESTAMP){clock} AS {name})")
