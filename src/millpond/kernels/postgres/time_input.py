"""Reads dates and times as PostgreSQL's input functions do, with DateStyle ISO, MDY.

A text is cut into tokens, each token fills fields, and the fields make the value.
Law: no field is filled twice; what cannot be read is refused in PostgreSQL's words.
The words now, today, tomorrow and yesterday need a clock, which this module does not have: a `ReadTime` names
the word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal

from millpond.kernels.postgres.calendar import (
    DAY_US,
    FIRST_DAY,
    FOREVER_US,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    date_of,
    days_of,
    month_days,
)
from millpond.kernels.postgres.time_to_text import DAYS, MONTHS
from millpond.kernels.postgres.zone_names import Zone, abbreviated, is_constant, named, offset_s

_YMD = frozenset(["year", "month", "day"])
_HMS = frozenset(["hour", "minute", "second"])
_JULIAN_1970 = 2_440_588
_LARGEST = (1 << 31) - 1
_MONTHS = {
    word: number + 1
    for number, name in enumerate(MONTHS)
    for word in (name.lower(), name.lower()[:3], *(["sept"] if number == 8 else []))
}
_WEEKDAYS = {name.lower() for name in DAYS} | {name.lower()[:3] for name in DAYS}
_WEEKDAYS |= {"tues", "weds", "thur", "thurs"}
_LABELS = {
    "d": "day", "h": "hour", "j": "julian", "jd": "julian", "julian": "julian", "m": "month",
    "mm": "minute", "s": "second", "y": "year",
}  # fmt: skip
_ENDLESS = {"infinity": FOREVER_US, "-infinity": -FOREVER_US, "epoch": 0}
CLOCK_WORDS = frozenset(["now", "today", "tomorrow", "yesterday"])
_OTHER_WORDS = frozenset(["ad", "bc", "am", "pm", "at", "on", "dst", "t", "allballs", "dow", "doy"])
_WORDS = frozenset([*_MONTHS, *_WEEKDAYS, *_LABELS, *_ENDLESS, *CLOCK_WORDS, *_OTHER_WORDS])
_NUMERIC_START = re.compile(r"\d+(?::[\d:.]*|([-/])(?:\d+(?:\1(?:\d|\1)*)?|(?:\1|[^\W_])*))?", re.ASCII)
_POINTED = re.compile(r"\d+\.(?:(\d+)(\.[\d.]*)?|(?:[^\W_]|\.)*)", re.ASCII)
_LETTERS = re.compile(r"[a-z]+")
_ZONE_NAME = re.compile(r"[-+/_.:a-z0-9]+")
_SIGNED = re.compile(r"([+-])\s*(?:(\d[\d:.-]*)|([a-z]+))")
_OFFSET = re.compile(r"([+-])(\d*)(?::(\d*)(?::(\d*))?)?")
_CLOCK = re.compile(r"(\d+):(\d*)(?::(\d*))?(\.\d*)?")
_MOST_TOKENS = 25


class Unreadable(ValueError):
    """A text that is no date or time; `out_of_range` are the words for one whose fields are not possible."""

    def __init__(self, out_of_range: str | None = None) -> None:
        super().__init__(out_of_range)
        self.out_of_range = out_of_range


_FIELD_RANGE = "date/time field value out of range"
_ZONE_RANGE = "time zone displacement out of range"


@dataclass(frozen=True)
class Token:
    kind: str  # date, time, zone, number or word
    text: str


@dataclass(frozen=True)
class ReadTime:
    """What a text says: a local time and its zone; or infinity; or a word that needs the clock."""

    us: int
    zone: Zone | None = None
    word: str | None = None  # epoch, infinity, -infinity, or one of CLOCK_WORDS
    day: int = 0  # that is written: 24:00:00 is in the next one

    def utc_us(self, zone: Zone) -> int:
        """Microseconds in UTC; `zone` is that of a text without one."""
        if self.word is not None:
            return self.us
        return self.us - offset_s(zone if self.zone is None else self.zone, self.us) * SECOND_US


@dataclass
class _Fields:
    """The fields that the tokens filled so far."""

    only_time: bool = False
    filled: set[str] = field(default_factory=set)
    value: dict[str, int] = field(default_factory=dict)
    us: int = 0
    zone: Zone | None = None
    zone_is_full: bool = False  # by its name
    shift_s: int = 0  # of DST
    short_year: bool = False
    text_month: bool = False
    era: str = ""
    half: str = ""  # am or pm
    julian: bool = False
    word: str | None = None
    label: str | None = None  # a word that says what the next number is

    def has(self, names: frozenset[str]) -> bool:
        return names <= self.filled

    def fill(self, **values: int) -> None:
        self.claim(*values)
        self.value.update(values)

    def claim(self, *names: str) -> None:
        if not self.filled.isdisjoint(names):
            raise Unreadable
        self.filled.update(names)


# -- tokens -------------------------------------------------------------------------------------------


def tokens_of(text: str) -> list[Token]:
    """
    >>> [(t.kind, t.text) for t in tokens_of("Jan 8, 1999 04:05-8 PST")]
    [('word', 'jan'), ('number', '8'), ('number', '1999'), ('time', '04:05'), ('zone', '-8'), ('word', 'pst')]
    """
    text = text.lower()
    found: list[Token] = []
    at = 0
    while at < len(text):
        sign = text[at]
        if sign.isspace():
            at += 1
            continue
        token, end = _token(text, at)
        if token is not None:
            found.append(token)
        at = end
    if len(found) > _MOST_TOKENS or not found:
        raise Unreadable
    return found


def _token(text: str, at: int) -> tuple[Token | None, int]:
    sign = text[at]
    if sign in "0123456789":
        return _numeric(text, at)
    if sign == ".":
        end = at + 1
        while end < len(text) and text[end] in "0123456789":
            end += 1
        return Token("number", text[at:end]), end
    if word := _LETTERS.match(text, at):
        return _word(text, at, word.end())
    if sign in "+-":
        signed = _SIGNED.match(text, at)
        if signed is None:
            raise Unreadable
        if signed[2]:
            return Token("zone", signed[1] + signed[2]), signed.end()
        return Token("word", signed[1] + signed[3]), signed.end()
    if sign.isascii() and sign.isprintable():
        return None, at + 1
    raise Unreadable


def _numeric(text: str, at: int) -> tuple[Token, int]:
    pointed = _POINTED.match(text, at)
    if pointed is not None:
        is_date = pointed[1] is None or pointed[2] is not None
        return Token("date" if is_date else "number", pointed[0]), pointed.end()
    found = _NUMERIC_START.match(text, at)
    assert found is not None
    said = found[0]
    kind = "number" if said.isdigit() else "time" if ":" in said else "date"
    return Token(kind, said), found.end()


def _word(text: str, at: int, end: int) -> tuple[Token, int]:
    """Letters; with punctuation they are a date with a month or the name of a zone."""
    after = text[end : end + 1]
    joined = after in ("-", "/", ".")
    if after and (after == "+" or after in "0123456789"):
        joined = _known(text[at:end]) is None
    if not joined:
        return Token("word", text[at:end]), end
    rest = _ZONE_NAME.match(text, end)
    assert rest is not None
    return Token("date", text[at : rest.end()]), rest.end()


def _known(word: str) -> str | None:
    """A word of the table, of which ten letters count."""
    word = word[:10]
    return word if word in _WORDS else None


# -- fields -------------------------------------------------------------------------------------------


def _read(text: str, *, only_time: bool = False) -> _Fields:
    given = tokens_of(text)
    read = _Fields(only_time)
    if only_time:
        read.filled |= _day_fields(given)
    for place, token in enumerate(given):
        match token.kind:
            case "date":
                _date_token(token.text, read, place, given)
            case "time":
                _follow_label(read)
                _clock(token.text, read)
            case "zone":
                _displacement(token.text, read)
            case "number" if read.label is not None:
                _labelled(token.text, read)
            case "number":
                _number_token(token.text, read)
            case _:
                _word_token(token.text, read, given[place + 1 :])
    return read


def _day_fields(given: list[Token]) -> frozenset[str]:
    """A time alone has no numbers of a day, unless it begins with a date."""
    kinds = [token.kind for token in given]
    dated = len(kinds) > 1 and (
        (kinds[0] == "date" and (kinds[-1] == "date" or kinds[1] == "time"))
        or (kinds[0] == "number" and "." in given[0].text and kinds[-1] == "date")
    )
    return frozenset() if dated else _YMD


def _follow_label(read: _Fields) -> None:
    if read.label not in (None, "time"):
        raise Unreadable
    read.label = None


def _date_token(text: str, read: _Fields, place: int, given: list[Token]) -> None:
    if read.label == "julian":
        whole = re.match(r"\d+", text)
        if whole is None:
            raise Unreadable
        read.label = None
        _julian(whole[0], read)
        read.claim(*_HMS)
        _displacement(text[whole.end() :], read)
    elif read.label is not None or {"month", "day"} <= read.filled:
        if text[0] in "0123456789" or read.label is not None:
            _follow_label(read)
            if read.has(_HMS) or "-" not in text:
                raise Unreadable
            at = text.index("-")
            _displacement(text[at:], read)
            _run_together(text[:at], read)
        else:
            _zone_named(text, read, said=True)
    else:
        _date(text, read)


def _date(text: str, read: _Fields) -> None:
    """A date in one piece: 1/8/1999, 1999-jan-08."""
    parts = re.findall(r"\d+|[a-z]+", text)
    if not text[-1].isalnum():
        raise Unreadable
    for part in parts:
        if part.isalpha():
            month = _MONTHS.get(part[:10])
            if month is None:
                if part[:10] in ("at", "on"):
                    continue
                raise Unreadable
            read.fill(month=month)
            read.text_month = True
    for part in parts:
        if part.isdigit():
            _day_number(part, read)
    if read.filled - {"day_of_year", "zone"} != _YMD:  # a time or a weekday stands behind it
        raise Unreadable


def _day_number(text: str, read: _Fields) -> None:
    """One number, whose place says whether it is a year, a month or a day."""
    value = _integer(text)
    known = read.filled & _YMD
    if len(text) == 3 and known == {"year"} and 1 <= value <= 366:
        read.fill(day_of_year=value)
        read.claim("month", "day")
        return
    match sorted(known):
        case []:
            name = "year" if len(text) >= 3 else "month"
        case ["year"] | ["day"]:
            name = "month"
        case ["month"]:
            name = "year" if read.text_month and len(text) >= 3 else "day"
        case ["month", "year"]:
            name = "day"
            if read.text_month and len(text) >= 3 and read.short_year:
                read.value["day"], read.short_year = read.value["year"], False
                read.claim("day")
                read.value["year"] = value
                return
        case ["day", "month"]:
            name = "year"
        case _:
            raise Unreadable
    read.fill(**{name: value})
    if name == "year":
        read.short_year = len(text) <= 2


def _number_token(text: str, read: _Fields) -> None:
    whole, point, _ = text.partition(".")
    if point and not read.filled & _YMD:
        _date(text, read)
    elif (point and len(whole) > 2) or (
        len(text) >= 6 and (not read.filled & _YMD or not read.filled & _HMS)
    ):
        _run_together(text, read)
    elif point:
        raise Unreadable
    elif read.has(_YMD):
        _run_together(text, read)
    else:
        _day_number(text, read)


def _run_together(text: str, read: _Fields) -> None:
    """Digits of a date or of a time: 19990108, 990108, 040506.789, 0405."""
    digits, point, rest = text.partition(".")
    if not digits.isdigit():
        raise Unreadable
    if not point and not read.has(_YMD) and len(digits) >= 6:
        year, month, day = digits[:-4], digits[-4:-2], digits[-2:]
        read.fill(year=_integer(year), month=int(month), day=int(day))
        read.short_year = len(year) == 2
    elif not read.has(_HMS) and len(digits) in (4, 6):
        read.fill(hour=int(digits[:2]), minute=int(digits[2:4]), second=int(digits[4:] or "0"))
        read.us = _fraction(rest)
    else:
        raise Unreadable


def _clock(text: str, read: _Fields) -> None:
    """04:05, 04:05:06.789; 05:06.789 has no hour."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise Unreadable
    hour, minute, second = (_integer(found[n] or "0") for n in (1, 2, 3))
    if found[4] is not None and found[3] is None:
        hour, minute, second = 0, hour, minute
    us = _fraction((found[4] or ".")[1:])
    if minute > 59 or second > 60:
        raise Unreadable(_FIELD_RANGE)
    read.fill(hour=hour, minute=minute, second=second)
    read.us = us
    if not read.only_time:
        _check_clock(read)


def _check_clock(read: _Fields) -> None:
    f = read.value
    clock = _clock_us(read)
    if f.get("hour", 0) > 24 or f.get("minute", 0) > 59 or f.get("second", 0) > 60 or clock > DAY_US:
        raise Unreadable(_FIELD_RANGE)


def _clock_us(read: _Fields) -> int:
    f = read.value
    return (
        f.get("hour", 0) * HOUR_US + f.get("minute", 0) * MINUTE_US + f.get("second", 0) * SECOND_US + read.us
    )


def _labelled(text: str, read: _Fields) -> None:
    """A number behind a label: J2451187, y1999 m01 d08, T040506."""
    label, read.label = read.label, None
    whole, point, rest = text.partition(".")
    if label == "time":
        if not read.has(_YMD):
            raise Unreadable
        _run_together(text, read)
    elif label == "julian":
        _julian(whole, read)
        if point:
            read.claim(*_HMS)
            read.us = int(Decimal(f"0.{rest or 0}") * DAY_US)
    elif point and label != "second":
        raise Unreadable
    else:
        assert label is not None
        name = "minute" if label == "month" and {"month", "hour"} <= read.filled else label
        read.fill(**{name: _integer(whole)})
        if point:
            read.us = _fraction(rest)


def _julian(digits: str, read: _Fields) -> None:
    year, month, day = date_of(_integer(digits) - _JULIAN_1970)
    if read.only_time:
        return
    read.fill(year=year, month=month, day=day)
    read.julian = True


def _word_token(text: str, read: _Fields, rest: list[Token]) -> None:
    zone = abbreviated(text)
    if zone is not None:
        read.claim("zone")
        read.zone = zone
        return
    word = _known(text)
    if word is None:
        _zone_named(text, read)
    elif word in _MONTHS:
        _month_word(_MONTHS[word], read)
    elif word in _WEEKDAYS:
        _refuse_in_time(read)
        read.claim("weekday")
    elif word in ("am", "pm"):
        read.claim("half")
        read.half = word
    elif word in ("ad", "bc"):
        read.claim("era")
        read.era = word
    elif word == "dst":
        read.claim("dst")
        read.shift_s = 3600
    elif word == "t":
        if not read.has(_YMD) or not rest or rest[0].kind not in ("number", "time", "date"):
            raise Unreadable
        read.label = "time"
    elif word in _LABELS:
        read.label = _LABELS[word]
    elif word in ("dow", "doy"):
        raise Unreadable
    elif word not in ("at", "on"):
        _reserved(word, read)


def _refuse_in_time(read: _Fields) -> None:
    if read.only_time:
        raise Unreadable


def _month_word(month: int, read: _Fields) -> None:
    _refuse_in_time(read)
    swapped = "month" in read.filled and not read.text_month and "day" not in read.filled
    if swapped and 1 <= read.value["month"] <= 31:  # the number before it was the day
        read.fill(day=read.value["month"])
        read.value["month"] = month
    else:
        read.fill(month=month)
    read.text_month = True


def _reserved(word: str, read: _Fields) -> None:
    if word == "allballs":
        read.fill(hour=0, minute=0, second=0)
        read.claim("zone")
        read.zone = 0
        return
    if read.only_time and word != "now":
        raise Unreadable
    if word in CLOCK_WORDS:
        read.claim(*(_HMS if read.only_time else _YMD))
        if word == "now" and not read.only_time:
            read.claim(*_HMS, "zone")
    else:
        read.claim("word")
    read.word = word


def _displacement(text: str, read: _Fields) -> None:
    """-8, +05:30, -0800"""
    found = _OFFSET.match(text)
    if found is None:
        raise Unreadable
    hours, minutes, seconds = (int(found[n] or "0") for n in (2, 3, 4))
    if found[3] is None and len(text) > 3 and found.end() == len(text):
        hours, minutes = divmod(hours, 100)
    if hours > 15 or minutes > 59 or seconds > 59:
        raise Unreadable(_ZONE_RANGE)
    if found.end() < len(text):
        raise Unreadable
    east = (hours * 60 + minutes) * 60 + seconds
    read.claim("zone")
    read.zone = -east if found[1] == "-" else east


def _zone_named(text: str, read: _Fields, *, said: bool = False) -> None:
    zone = named(text)
    if zone is None and said:
        raise ValueError(f'time zone "{text}" not recognized')
    if zone is None:
        raise Unreadable
    read.claim("zone")
    read.zone = zone
    read.zone_is_full = True


def _integer(digits: str) -> int:
    value = int(digits)
    if value > _LARGEST:
        raise Unreadable(_FIELD_RANGE)
    return value


def _fraction(digits: str) -> int:
    """Microseconds of the digits behind a point."""
    return int((Decimal(f"0.{digits or 0}") * SECOND_US).to_integral_value(ROUND_HALF_EVEN))


# -- values -------------------------------------------------------------------------------------------


def _day_of(read: _Fields) -> int:
    f = read.value
    year = f.get("year", 0)
    if "year" in f and not read.julian:
        if read.short_year and read.era != "bc":
            year += 2000 if year < 70 else 1900
        elif year <= 0:
            raise Unreadable(_FIELD_RANGE)
        elif read.era == "bc":
            year = 1 - year
    if "day_of_year" in f:
        return days_of(year, 1, 1) + f["day_of_year"] - 1
    month, day = f.get("month", 1), f.get("day", 1)
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        raise Unreadable(_FIELD_RANGE)
    if {"year", "month", "day"} <= f.keys() and day > month_days(year, month):
        raise Unreadable(_FIELD_RANGE)
    return days_of(year, month, day)


def _twelve_hours(read: _Fields) -> None:
    hour = read.value.get("hour", 0)
    if not read.half:
        return
    if hour > 12:
        raise Unreadable(_FIELD_RANGE)
    read.value["hour"] = hour % 12 + (12 if read.half == "pm" else 0)


def _day_and_time(text: str) -> ReadTime:
    read = _read(text)
    word = read.word
    days = 0 if word else _day_of(read)
    _twelve_hours(read)
    if word in _ENDLESS:
        return ReadTime(_ENDLESS[word], word=word)
    if word is None and not read.has(_YMD):
        raise Unreadable
    return ReadTime(days * DAY_US + _clock_us(read), _zone(read), word, days)


def _day_alone(text: str) -> ReadTime:
    found = _day_and_time(text)
    return found if found.word else ReadTime(found.day * DAY_US)


def _zone(read: _Fields) -> Zone | None:
    if not read.shift_s:
        return read.zone
    if not isinstance(read.zone, int) or read.zone_is_full:
        raise Unreadable
    return read.zone + read.shift_s


def _time_of_day(text: str) -> ReadTime:
    read = _read(text, only_time=True)
    dated = "day" in read.value or "day_of_year" in read.value
    days = _day_of(read) if dated else 0
    _twelve_hours(read)
    _check_clock(read)
    zone = _zone(read)
    if not read.has(_HMS) or (read.zone_is_full and not dated and not is_constant(zone or 0)):
        raise Unreadable
    clock = _clock_us(read)
    if zone is not None and dated:
        zone = offset_s(zone, days * DAY_US + clock)
    return ReadTime(clock, zone, read.word)


_LAST_STAMPED = days_of(294_247, 1, 8)  # of 64 bits, in every zone; PostgreSQL counts from 2000, to 294276
_LAST_DAYS = {
    "date": days_of(5_874_897, 12, 31),
    "timestamp": _LAST_STAMPED,
    "timestamp with time zone": _LAST_STAMPED,
}
_READERS = {
    "date": _day_alone,
    "timestamp": _day_and_time,
    "timestamp with time zone": _day_and_time,
    "time": _time_of_day,
    "time with time zone": _time_of_day,
}


def read_time(text: str, kind: str) -> ReadTime:
    """A text of a type, by PostgreSQL's name of it.

    >>> read_time("January 8, 1999", "date").us // DAY_US
    10599
    >>> read_time("04:05:06.789-8", "time with time zone")
    ReadTime(us=14706789000, zone=-28800, word=None, day=0)
    >>> read_time("2/30/1999", "date")
    Traceback (most recent call last):
    ValueError: date/time field value out of range: "2/30/1999"
    """
    plain = text.replace("(BC)", "BC")  # as a date before the year 1 is written here
    try:
        found = _READERS[kind](plain)
    except Unreadable as error:
        said = error.out_of_range or f"invalid input syntax for type {kind}"
        raise ValueError(f'{said}: "{text}"') from None
    last = _LAST_DAYS.get(kind)
    if found.word is None and last is not None and not FIRST_DAY <= found.us // DAY_US <= last:
        raise ValueError(f'{kind.split()[0]} out of range: "{text}"')
    return found
