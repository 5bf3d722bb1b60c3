"""Texts of instants in a time zone other than UTC."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from millpond.kernels.postgres.calendar import FOREVER_US
from millpond.kernels.postgres.composite_output import composite_text
from millpond.kernels.postgres.json_text import JsonObject, json_of, read_pairs
from millpond.kernels.postgres.rows import row_function
from millpond.kernels.postgres.time_to_text import written_in_zone
from millpond.kernels.postgres.type_names import TypeName, type_named
from millpond.kernels.time_zones import offset_text

_EPOCH = datetime.datetime(1970, 1, 1)
_LAST_YEAR = 9999  # of Python's calendar
_OF_MINUTES = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)( \(BC\))? (\d\d):(\d\d):(\d\d)(\.\d+)?([+-])(\d\d)(?::(\d\d))?"
)


@row_function("pg.timestamptz_text.1", ("VARCHAR", "BIGINT"), "VARCHAR")
def timestamptz_text(local: str, offset_s: int) -> str:
    """The text of a local time, and its difference from UTC."""
    return local if local.endswith("infinity") else local + offset_text(offset_s)


@row_function("pg.timestamptz_seconds.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def with_seconds(text: str, zone: str) -> str:
    """The text of an instant in a zone with the seconds of its difference from UTC, which DuckDB leaves out.

    Only times before there were zones have such seconds.
    """
    found = _OF_MINUTES.fullmatch(text)
    if found is None:
        return text
    year = 1 if found[4] else int(found[1])
    if year > 1972:  # Liberia was the last
        return text
    month, day, hour, minute, second = (int(found[n]) for n in (2, 3, 5, 6, 7))
    at = datetime.datetime(max(year, 2), month, day, hour, minute, second)
    minutes = int(found[10]) * 60 + int(found[11] or 0)
    utc = at - datetime.timedelta(minutes=-minutes if found[9] == "-" else minutes)
    return text[: found.start(9)] + offset_text(_offset_s(zone, utc))


@lru_cache(maxsize=4096)
def _offset_s(zone: str, utc: datetime.datetime) -> int:
    found = utc.replace(tzinfo=datetime.UTC).astimezone(ZoneInfo(zone)).utcoffset()
    assert found is not None
    return int(found.total_seconds())


@row_function("pg.to_char_timestamptz.2", ("TIMESTAMP", "VARCHAR", "VARCHAR", "BIGINT"), "VARCHAR")
def to_char_timestamptz(us: int, pattern: str, zone: str, offset_s: int) -> str | None:
    """The same as version 1, with the abbreviation that a zone has at that time: CET or CEST."""
    if abs(us) == FOREVER_US:
        return None
    return written_in_zone(us, pattern, _abbreviation(zone, us - offset_s * 1_000_000), offset_s)


@lru_cache(maxsize=4096)
def _abbreviation(zone: str, us: int) -> str:
    try:
        at = _EPOCH.replace(tzinfo=datetime.UTC) + datetime.timedelta(microseconds=us)
    except OverflowError:
        at = datetime.datetime(_LAST_YEAR if us > 0 else 2, 1, 2, tzinfo=datetime.UTC)
    return at.astimezone(ZoneInfo(zone)).tzname() or zone


# -- values with instants inside ----------------------------------------------------------------------


@row_function("pg.to_json.2", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR")
def to_json(text: str, kind: str, zone: str) -> str:
    """The same as version 1, with the instants of the value in a zone."""
    return json_of(_in_zone(read_pairs(text), type_named(kind), zone), type_named(kind))


@row_function("pg.to_json_lines.2", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR")
def to_json_lines(text: str, kind: str, zone: str) -> str:
    return json_of(_in_zone(read_pairs(text), type_named(kind), zone), type_named(kind), ",\n ")


@row_function("pg.composite_out.2", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR")
def composite_out(text: str, kind: str, zone: str) -> str:
    return composite_text(_in_zone(read_pairs(text), type_named(kind), zone), type_named(kind)) or ""


def _in_zone(value: Any, kind: TypeName, zone: str) -> Any:
    """A value that DuckDB wrote as JSON, with the texts of instants in a zone."""
    if value is None:
        return None
    if kind.is_list:
        return [_in_zone(v, kind.parts[0][1], zone) for v in value]
    if kind.is_record:
        fields = [v for _, v in value] if isinstance(value, JsonObject) else value
        made = [_in_zone(v, k, zone) for v, (_, k) in zip(fields, kind.parts, strict=True)]
        if not isinstance(value, JsonObject):
            return made
        return JsonObject((name, v) for (name, _), v in zip(value, made, strict=True))
    return _instant_in_zone(value, zone) if kind.name == "TIMESTAMP WITH TIME ZONE" else value


def _instant_in_zone(text: str, zone: str) -> str:
    found = _OF_MINUTES.fullmatch(text)
    if found is None or found[4]:
        if text.endswith("infinity"):
            return text
        raise ValueError(f"a time that cannot be shown in the time zone {zone}: {text}")
    minutes = int(found[10]) * 60 + int(found[11] or 0)
    year, month, day, hour, minute, second = (int(found[n]) for n in (1, 2, 3, 5, 6, 7))
    at = datetime.datetime(year, month, day, hour, minute, second)
    utc = at - datetime.timedelta(minutes=-minutes if found[9] == "-" else minutes)
    offset_s = _offset_s(zone, utc)
    if minutes:  # DuckDB wrote the local time, and perhaps left out the seconds of the difference
        return text[: found.start(9)] + offset_text(offset_s)
    return f"{utc + datetime.timedelta(seconds=offset_s)}{found[8] or ''}{offset_text(offset_s)}"
