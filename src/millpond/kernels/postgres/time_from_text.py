"""to_date and to_timestamp: read a text by a format."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal

from millpond.kernels.postgres.calendar import (
    DAY_US,
    FOREVER_US,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    checked_date,
    days_of,
    iso_week_start,
    month_days,
)
from millpond.kernels.postgres.rows import row_function
from millpond.kernels.postgres.time_formats import FormatPart, parts_of
from millpond.kernels.postgres.time_to_text import DAYS, MONTHS, ROMAN_MONTHS

_WIDTHS = {
    **dict.fromkeys(("YYYY", "IYYY"), 4),
    **dict.fromkeys(("YYY", "IYY", "DDD", "IDDD", "MS", "TZH"), 3),
    **dict.fromkeys(("YY", "IY", "MM", "DD", "HH24", "HH12", "HH", "MI", "SS", "IW", "WW", "CC", "TZM"), 2),
    **dict.fromkeys(("Y", "I", "W", "D", "ID", "Q"), 1),
    **{"US": 6, "SSSS": 5, "SSSSS": 5, "J": 7, **{f"FF{n}": n for n in range(1, 7)}},
}
_NUMBERS = frozenset(_WIDTHS)
_DIGITS = re.compile(r"[+-]?\d+")


@dataclass
class _ReadFields:
    fields: dict[str, int] = field(default_factory=dict)
    short_year: int = 0  # digits of a year that has fewer than four places
    before_christ: bool = False
    afternoon: bool | None = None
    zone_minus: bool = False


@row_function("pg.to_date.1", ("VARCHAR", "VARCHAR"), "DATE")
def to_date(text: str, pattern: str) -> int | None:
    found = _parsed(text, pattern)
    return None if found is None else found // DAY_US


@row_function("pg.to_timestamp.1", ("VARCHAR", "VARCHAR"), "TIMESTAMP")
def to_timestamp(text: str, pattern: str) -> int | None:
    return _parsed(text, pattern)


@row_function("pg.to_timestamp_seconds.1", ("DOUBLE",), "TIMESTAMPTZ")
def to_timestamp_seconds(seconds: float) -> int:
    if seconds != seconds:
        raise ValueError("timestamp cannot be NaN")
    if seconds in (float("inf"), float("-inf")):
        return FOREVER_US if seconds > 0 else -FOREVER_US
    if not -210_866_803_200 <= seconds < 9_224_318_016_000:
        raise ValueError(f'timestamp out of range: "{seconds}"')
    return int((Decimal(seconds) * SECOND_US).to_integral_value())


def _parsed(text: str, pattern: str) -> int:
    """Microseconds; what the format does not name is the start of the year 1 BC."""
    read = _ReadFields()
    parts = parts_of(pattern)
    at = 0
    for place, part in enumerate(parts):
        if part.name:
            at = _skip_spaces(text, at)
            if at >= len(text):
                break
            digits_follow = place + 1 < len(parts) and parts[place + 1].name in _NUMBERS
            at = _field(part, text, at, read, digits_follow, pattern)
        elif part.quoted:
            at += len(part.text)
        elif part.text.isspace():
            at = _skip_spaces(text, at)
            if at < len(text) and not text[at].isalnum() and text[at] not in "+-":
                at = at + 1
        elif part.text.isalnum():
            at += 1
        elif at < len(text) and not text[at].isalnum():
            at = _skip_spaces(text, at)
            if at < len(text) and not text[at].isalnum() and not text[at].isspace():
                at += 1
    return _assembled(read, text)


def _skip_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _field(part: FormatPart, text: str, at: int, read: _ReadFields, digits_follow: bool, pattern: str) -> int:
    name = part.name
    key = name.upper()
    if name in _NUMBERS:
        return _numbered(part, text, at, read, digits_follow)
    if key in ("MONTH", "MON", "DAY", "DY", "RM"):
        return _named(key, text, at, read)
    if key.replace(".", "") in ("AM", "PM", "AD", "BC"):
        mark = re.compile(r"(a|p)\.?m\.?|(a\.?d|b\.?c)\.?", re.IGNORECASE).match(text, at)
        if mark is None:
            raise ValueError(f'invalid value "{text[at : at + 2]}" for "{name}"')
        if mark[1]:
            read.afternoon = mark[1].lower() == "p"
        else:
            read.before_christ = mark[2][0].lower() == "b"
        return mark.end()
    if key == "Y,YYY":
        found = re.compile(r"(\d+),(\d{3})").match(text, at)
        if found is None:
            raise ValueError('invalid value for "Y,YYY"')
        read.fields["YYYY"] = int(found[1]) * 1000 + int(found[2])
        return found.end()
    if key in ("OF", "TZ"):
        zone = re.compile(r"([+-])(\d\d?)(?::?(\d\d))?").match(text, at)
        if zone is None:
            raise ValueError(f'formatting field "{name}" is only supported in to_char')
        read.fields["TZH"], read.fields["TZM"] = int(zone[2]), int(zone[3] or 0)
        read.zone_minus = zone[1] == "-"
        return zone.end()
    raise ValueError(f'formatting field "{name}" is only supported in to_char')


def _numbered(part: FormatPart, text: str, at: int, read: _ReadFields, digits_follow: bool) -> int:
    name = part.name
    width = _WIDTHS[name]
    fixed = part.fill and digits_follow
    limit = width if fixed or name in ("MS", "US") or name.startswith("FF") else 30
    found = _DIGITS.match(text, at, at + limit)
    if found is None:
        raise ValueError(f'invalid value "{text[at : at + width]}" for "{name}"')
    value = int(found[0])
    if name in ("MS", "US") or name.startswith("FF"):
        digits = found[0].lstrip("+-")
        value = int(digits.ljust(6, "0")[:6]) if name != "MS" else int(digits.ljust(3, "0")) * 1000
        name = "US"
    elif name == "TZH":
        read.zone_minus = found[0].startswith("-")
        value = abs(value)
    elif name in ("YYY", "YY", "Y", "IYY", "IY", "I") and len(found[0]) <= 3:
        value = _adjusted_year(value)
    key = {
        "HH": "HH12",
        "SSSSS": "SSSS",
        "YYY": "YYYY",
        "YY": "YYYY",
        "Y": "YYYY",
        "IYY": "IYYY",
        "IY": "IYYY",
        "I": "IYYY",
    }.get(name, name)
    if key in read.fields and read.fields[key] != value:
        raise ValueError(f'conflicting values for "{name}" field in formatting string')
    read.fields[key] = value
    end = found.end()
    if part.ordinal:
        end += 2
    return end


def _adjusted_year(year: int) -> int:
    """The year of a short one: the nearest to 2020."""
    if year < 70:
        return year + 2000
    if year < 100:
        return year + 1900
    if year < 520:
        return year + 2000
    return year + 1000 if year < 1000 else year


def _named(key: str, text: str, at: int, read: _ReadFields) -> int:
    rest = text[at:].lower()
    if key == "RM":
        for number in sorted(range(12), key=lambda n: -len(ROMAN_MONTHS[n])):
            if rest.startswith(ROMAN_MONTHS[number].lower()):
                read.fields["MM"] = number + 1
                return at + len(ROMAN_MONTHS[number])
        raise ValueError(f'invalid value "{text[at : at + 4]}" for "RM"')
    names = MONTHS if key in ("MONTH", "MON") else DAYS
    for number, name in enumerate(names):
        shown = name.lower() if key in ("MONTH", "DAY") else name.lower()[:3]
        if rest.startswith(shown):
            read.fields["MM" if names is MONTHS else "D"] = number + 1
            return at + len(shown)
    raise ValueError(f'invalid value "{text[at : at + 3]}" for "{key}"')


def _assembled(read: _ReadFields, text: str) -> int:
    f = read.fields
    wrong = f'date/time field value out of range: "{text}"'
    days = _days(read, wrong)
    if "SSSS" in f:
        clock = f["SSSS"] * SECOND_US
    else:
        hour = f.get("HH24", 0)
        if "HH12" in f:
            if not 1 <= f["HH12"] <= 12:
                raise ValueError(f'hour "{f["HH12"]}" is invalid for the 12-hour clock')
            hour = f["HH12"] % 12 + (12 if read.afternoon else 0) if read.afternoon is not None else f["HH12"]
        minute, second = f.get("MI", 0), f.get("SS", 0)
        if not 0 <= hour < 24 or not 0 <= minute < 60 or not 0 <= second < 60:
            raise ValueError(wrong)
        clock = hour * HOUR_US + minute * MINUTE_US + second * SECOND_US
    us = days * DAY_US + clock + f.get("US", 0)
    if "TZH" in f:
        offset = f["TZH"] * HOUR_US + f.get("TZM", 0) * MINUTE_US
        us += offset if read.zone_minus else -offset
    return us


def _days(read: _ReadFields, wrong: str) -> int:
    f = read.fields
    if "J" in f:
        return f["J"] - 2_440_588
    if "IYYY" in f:
        if "IDDD" in f:
            return iso_week_start(f["IYYY"], 1) + f["IDDD"] - 1
        week = f.get("IW", 1)
        if not 1 <= week <= 53:
            raise ValueError(wrong)
        day = f.get("ID") or ((f["D"] - 2) % 7 + 1 if "D" in f else 1)
        return iso_week_start(f["IYYY"], week) + day - 1
    year = f.get("YYYY")
    if year is None and "CC" in f:
        year = (f["CC"] - 1) * 100 + 1
    bc = read.before_christ
    if year is None:
        year = 0
    elif bc or year < 0:
        year = 1 - abs(year)
    if "DDD" in f:
        last = 366 if month_days(year, 2) == 29 else 365
        if not 1 <= f["DDD"] <= last:
            raise ValueError(wrong)
        return days_of(year, 1, 1) + f["DDD"] - 1
    month = f.get("MM") or 1
    day = f.get("DD") or 1
    if "WW" in f and "MM" not in f:
        return days_of(year, 1, 1) + (f["WW"] - 1) * 7
    if "W" in f and "DD" not in f:
        day = (f["W"] - 1) * 7 + 1
    found = checked_date(year, month, day)
    if found is None:
        raise ValueError(wrong)
    return found
