"""Patterns of Java for dates and times (`yyyy-MM-dd HH:mm:ss`), in the time zone UTC and in English."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache

from millpond.kernels.spark.rows import RefusedValue

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)
_PARSED = {
    "y": "year",
    "u": "year",
    "M": "month",
    "L": "month",
    "d": "day",
    "H": "hour",
    "h": "hour12",
    "m": "minute",
    "s": "second",
    "D": "day_of_year",
}
_WIDEST = {"M": 2, "L": 2, "d": 2, "H": 2, "h": 2, "m": 2, "s": 2, "D": 3, "k": 2, "K": 2}


@lru_cache(maxsize=1000)
def _tokens(pattern: str) -> tuple[tuple[str, str], ...]:
    """The parts of a pattern: (letters, "") or ("", text)."""
    found = []
    for match in _TOKEN.finditer(pattern):
        if match[2]:
            found.append((match[0], ""))
        elif match[3] is None:
            found.append(("", match[1].replace("''", "'") or "'"))
        elif match[3] in "[]{}#":
            raise RefusedValue(f"{match[3]!r} in the pattern {pattern!r} is not supported")
        else:
            found.append(("", match[3]))
    return tuple(found)


def shown(moment: datetime.datetime, pattern: str) -> str:
    """A moment by a pattern.

    >>> shown(datetime.datetime(2024, 2, 29, 13, 5, 9, 120000), "EEE, d MMM yyyy h:mm a S")
    'Thu, 29 Feb 2024 1:05 PM 1'
    """
    return "".join(
        _field(moment, letters, pattern) if letters else text for letters, text in _tokens(pattern)
    )


def _field(m: datetime.datetime, letters: str, pattern: str) -> str:
    width = len(letters)
    match letters[0]:
        case "y" | "u" if width <= 6:
            return f"{m.year % 100:02d}" if width == 2 else f"{m.year:0{width}d}"
        case "M" | "L" if width <= 4:
            return (str(m.month), f"{m.month:02d}", _MONTHS[m.month - 1][:3], _MONTHS[m.month - 1])[width - 1]
        case "q" | "Q" if width <= 4:
            n = (m.month + 2) // 3
            return (str(n), f"{n:02d}", f"Q{n}", ("1st", "2nd", "3rd", "4th")[n - 1] + " quarter")[width - 1]
        case "E" if width <= 4:
            return _DAYS[m.weekday()] if width == 4 else _DAYS[m.weekday()][:3]
        case "a" if width == 1:
            return "AM" if m.hour < 12 else "PM"
        case "S" if width <= 9:
            return f"{m.microsecond:06d}000"[:width]
        case "X" if width <= 3:
            return "Z"
        case "x" if width <= 3:
            return ("+00", "+0000", "+00:00")[width - 1]
        case "Z" if width <= 5:
            return "+0000" if width <= 3 else "GMT" if width == 4 else "Z"
        case "z" if width <= 4:
            return "UTC" if width < 4 else "Coordinated Universal Time"
        case "V" if width == 2:
            return "UTC"
        case "O" if width in (1, 4):
            return "GMT"
        case "G" if width <= 3:
            return "AD"
    numbers = {
        "d": m.day,
        "D": m.timetuple().tm_yday,
        "H": m.hour,
        "k": m.hour or 24,
        "K": m.hour % 12,
        "h": m.hour % 12 or 12,
        "m": m.minute,
        "s": m.second,
        "F": (m.day - 1) // 7 + 1,
    }
    if letters[0] not in numbers or width > _WIDEST.get(letters[0], 1):
        raise RefusedValue(f"{letters!r} in the pattern {pattern!r} is not supported")
    return f"{numbers[letters[0]]:0{width}d}"


@lru_cache(maxsize=1000)
def _reader(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    text, names = "", []
    for letters, plain in _tokens(pattern):
        if plain:
            text += re.escape(plain)
            continue
        kind, width = letters[0], len(letters)
        if kind in "yu":
            text += {1: r"([+-]?\d{1,9})", 2: r"(\d{2})", 4: r"(\d{4})"}.get(width) or _unknown(
                letters, pattern
            )
        elif kind in "ML" and width in (3, 4):
            known = [m[:3] for m in _MONTHS] if width == 3 else list(_MONTHS)
            text += f"((?i:{'|'.join(known)}))"
        elif kind in _PARSED and width <= _WIDEST[kind]:
            text += rf"(\d{{{width}}})" if width > 1 else rf"(\d{{1,{_WIDEST[kind]}}})"
        elif kind == "S" and width <= 9:
            text += rf"(\d{{{width}}})"
        elif kind == "a" and width == 1:
            text += "((?i:AM|PM))"
        elif kind in "XxZ":
            text += r"(Z|[+-]\d{2}:?\d{2}|[+-]\d{2})"
        elif kind == "E" and width <= 4:
            known = list(_DAYS) if width == 4 else [d[:3] for d in _DAYS]
            text += f"((?i:{'|'.join(known)}))"
        else:
            _unknown(letters, pattern)
        names.append(letters)
    return re.compile(text), tuple(names)


def _unknown(letters: str, pattern: str) -> str:
    raise RefusedValue(f"{letters!r} in the pattern {pattern!r} is not supported")


def read(text: str, pattern: str) -> datetime.datetime | None:
    """The moment that a text says by a pattern; None if it does not fit.

    >>> read("29 Feb 2024", "d MMM yyyy")
    datetime.datetime(2024, 2, 29, 0, 0)
    """
    code, names = _reader(pattern)
    found = code.fullmatch(text)
    if found is None:
        return None
    held = {"year": 1970, "month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0, "micros": 0, "offset": 0}
    noon = None
    for letters, value in zip(names, found.groups(), strict=True):
        kind = letters[0]
        if kind in "yu":
            held["year"] = int(value) + (2000 if len(letters) == 2 else 0)
        elif kind in "ML" and len(letters) > 2:
            held["month"] = [m[:3].lower() for m in _MONTHS].index(value[:3].lower()) + 1
        elif kind == "S":
            held["micros"] = int(value[:6].ljust(6, "0"))
        elif kind == "a":
            noon = value.upper()
        elif kind in "XxZ":
            held["offset"] = offset_seconds(value)
        elif kind != "E":
            held[_PARSED[kind]] = int(value)
    if "hour12" in held:
        if not 1 <= held["hour12"] <= 12:
            return None
        held["hour"] = held["hour12"] % 12 + (12 if noon == "PM" else 0)
    try:
        made = datetime.datetime(
            held["year"],
            held["month"],
            held["day"],
            held["hour"],
            held["minute"],
            held["second"],
            held["micros"],
        )
        if "day_of_year" in held:
            made = datetime.datetime(
                held["year"], 1, 1, made.hour, made.minute, made.second, made.microsecond
            )
            made += datetime.timedelta(held["day_of_year"] - 1)
        return made - datetime.timedelta(seconds=held["offset"])
    except (ValueError, OverflowError):
        return None


def offset_seconds(text: str) -> int:
    """`Z`, `+01`, `+0130` or `+01:30`."""
    if text in ("Z", "UTC", "GMT"):
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    return (-1 if text[0] == "-" else 1) * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60)
