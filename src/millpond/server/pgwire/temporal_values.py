"""Dates, times and intervals that clients send.

Law: no value loses anything.  What Python's own types cannot hold (infinities, years before 1 or after 9999,
months of an interval) is a `duckdb.Value`: a text and its type, bound like any other value.
"""

from __future__ import annotations

import datetime
import re
import struct
import zoneinfo
from typing import Any

import duckdb
import numpy as np

from millpond.kernels.postgres.time_casts import plain_text
from millpond.kernels.postgres.time_input import read_time
from millpond.sql.binding.types import UTC

_DAY_ZERO = datetime.date(2000, 1, 1)
_ZERO = datetime.datetime(2000, 1, 1)
_INFINITE = re.compile(r"\s*([+-]?)infinity\s*", re.I)
_WIDE = re.compile(r"\s*(\d{1,6}-\d\d?-\d\d?(?:[ T].*?)?)\s*(BC)?\s*", re.I | re.S)
_ISO_DAY = re.compile(r"\s*\d{4}-?\d\d-?\d\d(\s|T|$)")
DATE, TIMESTAMP, TIMESTAMPTZ = "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"


def typed(text: str, kind: str) -> duckdb.Value:
    """A value as a text, and its type.

    >>> typed("infinity", "DATE").object
    'infinity'
    """
    return duckdb.Value(text, duckdb.sqltype(kind))


def _beyond(text: str, kind: str) -> duckdb.Value | None:
    """A value that Python's types cannot hold; None if they can, or if it is wrong."""
    if (infinite := _INFINITE.fullmatch(text)) is not None:
        return typed(f"{infinite[1].replace('+', '')}infinity", kind)
    wide = _WIDE.fullmatch(text)
    if wide is None or not (wide[2] or len(wide[1].partition("-")[0]) > 4):
        return None
    day, rest = re.split(r"(?=[ T])|$", wide[1].strip(), maxsplit=1)
    return typed(f"{day}{' (BC)' if wide[2] else ''}{rest}", kind)


def _own_form(text: str, kind: str) -> duckdb.Value | None:
    """A value in one of PostgreSQL's other forms, `Jan 8 1999`; None if it is an ISO one."""
    if _ISO_DAY.match(text):
        return None
    return typed(plain_text(read_time(text, kind.lower()), kind.lower()), kind)


# -- text --------------------------------------------------------------------------


def date(text: str) -> Any:
    """
    >>> date("2024-01-02"), date("infinity").object, date("0044-03-15 BC").object
    (datetime.date(2024, 1, 2), 'infinity', '0044-03-15 (BC)')
    """
    return _beyond(text, DATE) or _own_form(text, DATE) or datetime.date.fromisoformat(text.strip())


def timestamp(text: str) -> Any:
    found = _beyond(text, TIMESTAMP) or _own_form(text, TIMESTAMP)
    return found or datetime.datetime.fromisoformat(_iso(text)).replace(tzinfo=None)


def timestamptz(text: str, zone: str) -> Any:
    """An instant; without an offset it is a time of the zone."""
    beyond = _beyond(text, TIMESTAMPTZ)
    if beyond is not None:
        return beyond
    if not _ISO_DAY.match(text):
        us = read_time(text, TIMESTAMPTZ.lower()).utc_us(zone)
        return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=us)
    found = datetime.datetime.fromisoformat(_iso(text))
    if found.tzinfo is not None or zone == UTC:
        return found.replace(tzinfo=found.tzinfo or datetime.UTC).astimezone(datetime.UTC)
    return _instant(found, zoneinfo.ZoneInfo(zone))


def _instant(local: datetime.datetime, zone: datetime.tzinfo) -> datetime.datetime:
    """The instant of a local time: the later one of two, and a skipped one by the offset before.

    >>> berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    >>> [_instant(datetime.datetime(2024, *at), berlin).hour for at in ((10, 27, 2, 30), (3, 31, 2, 30))]
    [1, 1]
    """
    early, late = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    before, after = early.utcoffset(), late.utcoffset()
    assert before is not None and after is not None
    return (early if after > before else late).astimezone(datetime.UTC)


def _iso(text: str) -> str:
    """`2024-01-01 10:00:00.5 +02` as Python reads it."""
    text = re.sub(r"\s+(?=[+-]\d\d)", "", text.strip())
    return re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", text) if re.search(r":\d\d.*[+-]\d{4}$", text) else text


_US = 1_000_000
_DAY_US = 86_400 * _US
_UNITS: tuple[tuple[str, int, int, float], ...] = (  # a pattern; months, days and microseconds of one unit
    (r"millenni(?:um|ums|a)", 12_000, 0, 0),
    (r"centur(?:y|ies)", 1200, 0, 0),
    (r"decades?", 120, 0, 0),
    (r"y(?:(?:ea)?rs?)?", 12, 0, 0),
    (r"mon(?:th)?s?", 1, 0, 0),
    (r"w(?:eeks?)?", 0, 7, 0),
    (r"d(?:ays?)?", 0, 1, 0),
    (r"h(?:(?:ou)?rs?)?", 0, 0, 3600 * _US),
    (r"m(?:in(?:ute)?s?)?", 0, 0, 60 * _US),
    (r"s(?:ec(?:ond)?s?)?", 0, 0, _US),
    (r"m(?:illi)?s(?:ec(?:ond)?s?)?", 0, 0, 1000),
    (r"u(?:s(?:ec(?:ond)?s?)?)?|microsec(?:ond)?s?", 0, 0, 1),
)
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?|[+-]?\.\d+)\s*([a-z]+)", re.I)
_CLOCK = re.compile(r"\s*([+-]?)(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?", re.I)
_ISO = re.compile(r"P((?:[+-]?[\d.]+[YMWD])*)(?:T((?:[+-]?[\d.]+[HMS])+))?", re.I)
_ISO_PART = re.compile(r"([+-]?[\d.]+)([A-Z])", re.I)


def interval(text: str) -> Any:
    """
    >>> interval("1 year 2 mons -3 days 04:05:06.7").object
    '14 months -3 days 14706700000 microseconds'
    >>> interval("P1Y2M3DT4H").object, interval("@ 1 minute ago").object
    ('14 months 3 days 14400000000 microseconds', '0 months 0 days -60000000 microseconds')
    """
    months = days = us = 0.0
    for count, pattern in _parts(text.strip()):
        unit = next((u for u in _UNITS if re.fullmatch(u[0], pattern, re.I)), None)
        if unit is None:
            raise ValueError(f"{pattern!r} is no unit of time")
        months, days, us = months + count * unit[1], days + count * unit[2], us + count * unit[3]
    whole_months = int(months)
    days += (months - whole_months) * 30
    whole_days = int(days)
    return of_parts(whole_months, whole_days, round(us + (days - whole_days) * _DAY_US))


def of_parts(months: int, days: int, us: int) -> duckdb.Value:
    return typed(f"{months} months {days} days {us} microseconds", "INTERVAL")


def _parts(text: str) -> list[tuple[float, str]]:
    """The numbers and units of an interval, as PostgreSQL or ISO 8601 writes it."""
    iso = _ISO.fullmatch(text)
    if iso is not None and len(text) > 1:
        dates = [(float(n), "mon" if unit in "Mm" else unit) for n, unit in _ISO_PART.findall(iso[1])]
        return dates + [(float(n), unit) for n, unit in _ISO_PART.findall(iso[2] or "")]
    text = text.removeprefix("@")
    sign = -1 if text.lower().endswith(" ago") else 1
    text = text[:-4] if sign < 0 else text
    found: list[tuple[float, str]] = []
    at = 0
    while at < len(text.rstrip()):
        clock = _CLOCK.match(text, at)
        if clock is not None:
            turned = -1 if clock[1] == "-" else 1
            values = (float(clock[2]), float(clock[3]), float(clock[4] or 0))
            found += [(turned * value, unit) for value, unit in zip(values, "hms", strict=True)]
            at = clock.end()
            continue
        part = _PART.match(text, at)
        if part is None:
            rest = text[at:].strip()
            if not re.fullmatch(r"[+-]?\d+(\.\d+)?", rest):
                raise ValueError("not an interval")
            found.append((float(rest), "s"))
            break
        found.append((float(part[1]), part[2]))
        at = part.end()
    if not found:
        raise ValueError("not an interval")
    return [(sign * value, unit) for value, unit in found]


# -- binary ------------------------------------------------------------------------


def binary_date(data: bytes) -> Any:
    days = int.from_bytes(data, "big", signed=True)
    try:
        return _DAY_ZERO + datetime.timedelta(days=days)
    except OverflowError:
        return typed(_far(days, 32, "D"), DATE)


def binary_timestamp(data: bytes, kind: str) -> Any:
    us = int.from_bytes(data, "big", signed=True)
    try:
        found = _ZERO + datetime.timedelta(microseconds=us)
    except OverflowError:
        zone = "+00" if kind == TIMESTAMPTZ else ""
        text = _far(us, 64, "us")
        return typed(text if text.endswith("infinity") else text + zone, kind)
    return found.replace(tzinfo=datetime.UTC) if kind == TIMESTAMPTZ else found


def _far(count: int, bits: int, unit: Any) -> str:
    """A day or an instant that is far from 2000, or infinite."""
    if count in (2 ** (bits - 1) - 1, -(2 ** (bits - 1))):
        return "infinity" if count > 0 else "-infinity"
    shown = str(np.datetime64("2000-01-01", unit) + np.timedelta64(count, unit)).replace("T", " ")
    year, rest = re.fullmatch(r"([+-]?\d+)(-.*)", shown, re.S).groups()  # type: ignore[union-attr]
    if int(year) > 0:
        return f"{int(year):04}{rest}"
    return f"{1 - int(year):04}{rest[:6]} (BC){rest[6:]}"


def binary_interval(data: bytes) -> duckdb.Value:
    us, days, months = struct.unpack("!qii", data)
    return of_parts(months, days, us)
