"""The time zones that a session can have: the names of the IANA database."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from functools import cache

from millpond.errors import InvalidError
from millpond.sql.binding.types import UTC
from millpond.sql.text.duckdb_parser import parser
from millpond.sql.text.parse import SqlFragment, closest_name

_OFFSET = re.compile(r"(?:gmt|utc)([+-])(\d\d?)(?::?00)?")
_SAME_AS_UTC = ("utc", "uct", "gmt", "etc/utc", "etc/gmt", "etc/uct", "zulu", "etc/zulu", "universal",
                "etc/universal", "greenwich", "etc/greenwich", "gmt0", "gmt+0", "gmt-0",
                "z", "0", "+00", "+00:00", "local", "default")  # fmt: skip


@cache
def _names() -> Mapping[str, str]:
    """The names that DuckDB and Python know, by their lower case."""
    listed = parser().execute("select name from pg_timezone_names()").fetchall()
    both = {str(name) for (name,) in listed} & zoneinfo.available_timezones()
    return {name.lower(): name for name in both}


def zone_named(said: str) -> str:
    """The zone with a name, as the IANA database spells it.

    >>> zone_named("europe/berlin"), zone_named("Etc/UTC")
    ('Europe/Berlin', 'UTC')
    """
    lower = said.strip().lower()
    if lower in _SAME_AS_UTC:
        return UTC
    offset = _OFFSET.fullmatch(lower)  # as Java's clients send; west is plus
    found = _names().get(lower if offset is None else f"etc/gmt{offset[1]}{int(offset[2])}")
    if found is None:
        hint = closest_name(said, list(_names().values()))
        raise InvalidError(
            f'invalid value for parameter "TimeZone": "{said}"',
            hint=hint or "write a name of the IANA database, such as 'Europe/Berlin'; 'Etc/GMT-2' is +02",
        )
    return found


_ANY_ZONE = ("SET", "SHOW", "RESET", "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT",
             "RELEASE", "FLUSH", "SUBSCRIBE", "DROP")  # fmt: skip


def check_zone(fragment: SqlFragment, zone: str) -> None:
    """Refuse a statement whose meaning in a time zone other than UTC is not known here."""
    if zone == UTC or fragment.word(0) in _ANY_ZONE:
        return
    if fragment.dialect != "postgres":
        raise InvalidError(
            f"a session in the time zone {zone!r} runs statements of the dialect postgres only",
            detail=f"this one is of the dialect {fragment.dialect!r}",
            hint="SET TimeZone = 'UTC'",
        )
    for n, word in enumerate(fragment.words):
        if word == "GENERATE_SERIES" and fragment.word(n + 1) == "(":
            _check_series(fragment, n)
        whole = fragment.has(n, "TIME", "WITH", "TIME", "ZONE") and fragment.word(n - 1) != "WITHOUT"
        if whole or word in ("TIMETZ", "CURRENT_TIME") or _OF_JSON.fullmatch(word):
            what = "time with time zone" if whole else word.lower()
            fragment.fail(
                f"{what} is not supported in the time zone {zone!r}",
                n,
                "SET TimeZone = 'UTC', or use a timestamp with time zone",
            )


def _check_series(fragment: SqlFragment, at: int) -> None:
    """Refuse a series in FROM that may be one of instants by days: how long these are depends on the zone."""
    parts = fragment.bracket(at + 1)[0].split()
    if len(parts) < 3 or fragment.word(at - 1) not in ("FROM", "JOIN", ",", "LATERAL"):
        return
    start, step = parts[0].sql.lower(), parts[2].sql.lower()
    is_local = re.match(r"(timestamp|date)\s*'|.*::\s*(timestamp|date)$", start) is not None
    if not (is_local or _NUMBER.fullmatch(step) or _OF_HOURS.fullmatch(step)):
        fragment.fail(
            "a series of days or months is not supported over times with a zone",
            at,
            "SET TimeZone = 'UTC', or make a series of timestamps, and cast these",
        )


_NUMBER = re.compile(r"-?\s*[\d.]+")
_OF_HOURS = re.compile(r"(interval\s*)?'\s*-?\d+\s*(hour|minute|min|second|sec)s?\s*'(::\s*interval)?")
_OF_JSON = re.compile(r"JSONB_PATH_\w+_TZ")
