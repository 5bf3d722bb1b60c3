"""to_char for timestamps and intervals."""

from __future__ import annotations

from typing import NamedTuple

from millpond.kernels.postgres.calendar import (
    DAY_US,
    FOREVER_US,
    clock_of,
    date_of,
    day_of_year,
    iso_week,
    iso_week_start,
    weekday,
)
from millpond.kernels.postgres.rows import Interval, row_function
from millpond.kernels.postgres.time_formats import FormatPart, parts_of

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
ROMAN_MONTHS = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")


class _Moment(NamedTuple):
    """A point in time or an interval, as the fields of a format see it."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    us: int
    days: int = 0  # the number of the day
    is_interval: bool = False
    zone: str = ""
    offset_s: int = 0


@row_function("pg.to_char_timestamp.1", ("TIMESTAMP", "VARCHAR"), "VARCHAR")
def to_char_timestamp(us: int, pattern: str) -> str | None:
    return written_in_zone(us, pattern, "", 0)


@row_function("pg.to_char_timestamptz.1", ("TIMESTAMP", "VARCHAR", "VARCHAR", "BIGINT"), "VARCHAR")
def to_char_timestamptz(us: int, pattern: str, zone: str, offset_s: int) -> str | None:
    return written_in_zone(us, pattern, zone, offset_s)


def written_in_zone(us: int, pattern: str, zone: str, offset_s: int) -> str | None:
    if abs(us) == FOREVER_US or not pattern:
        return None
    days, rest = divmod(us, DAY_US)
    moment = _Moment(*date_of(days), *clock_of(rest), days=days, zone=zone, offset_s=offset_s)
    return "".join(_part(part, moment) for part in parts_of(pattern))


@row_function("pg.to_char_interval.1", ("INTERVAL", "VARCHAR"), "VARCHAR")
def to_char_interval(value: Interval, pattern: str) -> str | None:
    if not pattern:
        return None
    months, days, us = value
    year, month = _toward_zero(months, 12)
    seconds, rest = _toward_zero(us, 1_000_000)
    minutes, second = _toward_zero(seconds, 60)
    hour, minute = _toward_zero(minutes, 60)
    moment = _Moment(year, month, days, hour, minute, second, rest, is_interval=True)
    return "".join(_part(part, moment) for part in parts_of(pattern))


_NOT_OF_INTERVALS = frozenset(["MONTH", "MON", "DAY", "DY", "D", "ID", "TZ", "OF", "TZH", "TZM", "AD", "BC"])


def _julian(year: int, month: int, day: int) -> int:
    """The number of a Julian day, also for a month 0."""
    month, year = (month + 1, year + 4800) if month > 2 else (month + 13, year + 4799)
    century = year // 100
    return year * 365 - 32167 + year // 4 - century + century // 4 + 7834 * month // 256 + day


def _toward_zero(a: int, b: int) -> tuple[int, int]:
    whole = abs(a) // b * (1 if a >= 0 else -1)
    return whole, a - whole * b


def _part(part: FormatPart, moment: _Moment) -> str:
    if not part.name:
        return part.text
    text = _field(part, moment)
    return text + ordinal_suffix(text, part.ordinal) if part.ordinal else text


def ordinal_suffix(text: str, wanted: str) -> str:
    digits = text.strip()
    if not digits or not digits[-1].isdigit():
        return ""
    last = int(digits[-2:]) if digits[-2:].isdigit() else int(digits[-1])
    found = "th" if 10 < last < 20 else {1: "st", 2: "nd", 3: "rd"}.get(last % 10, "th")
    return found.upper() if wanted == "TH" else found


def _number(value: int, width: int, fill: bool) -> str:
    if not fill:
        return str(value)
    return f"{value:0{width + (value < 0)}d}"


def _name(name: str, text: str, width: int, fill: bool) -> str:
    shown = text.upper() if name.isupper() else text.lower() if name.islower() else text
    return shown.ljust(width) if fill else shown


def _field(part: FormatPart, m: _Moment) -> str:
    name, fill = part.name, part.fill
    if m.is_interval and name.upper().replace(".", "") in _NOT_OF_INTERVALS:
        raise ValueError("invalid format specification for an interval value")
    clock = _clock(name, fill, m)
    if clock is not None:
        return clock
    year = m.year if m.is_interval else (m.year if m.year > 0 else 1 - m.year)
    if name in ("YYYY", "YYY", "YY", "Y"):
        shown = year if name == "YYYY" else year % 10 ** len(name)
        return _number(shown, len(name), fill)
    if name == "Y,YYY":
        return f"{year // 1000},{year % 1000:03d}"
    if name in ("CC",):
        if m.is_interval:
            return _number(m.year // 100, 2, fill)
        century = (m.year + 99) // 100 if m.year > 0 else m.year // 100 - (0 if m.year else 1)
        return _number(century, 2, fill) if -100 < century < 100 else str(century)
    if name in ("MONTH", "Month", "month"):
        return _name(name, MONTHS[m.month - 1], 9, fill) if m.month else ""
    if name in ("MON", "Mon", "mon"):
        return _name(name, MONTHS[m.month - 1][:3], 0, fill) if m.month else ""
    if name in ("RM", "rm"):
        month = m.month or (12 if m.year > 0 else 1)  # of whole years
        return _name(name, ROMAN_MONTHS[month - (month > 0)], 4, fill) if m.month or m.year else ""
    if name == "MM":
        return _number(m.month, 2, fill)
    if name == "DD":
        return f"{m.day:02d}" if fill else str(m.day)
    return _calendar(part, m)


def _clock(name: str, fill: bool, m: _Moment) -> str | None:
    if name == "HH24":
        return _number(m.hour, 2, fill)
    if name in ("HH12", "HH"):
        twelve = abs(m.hour) % 12 or 12
        return _number(twelve if m.hour >= 0 else -twelve, 2, fill)
    if name == "MI":
        return _number(m.minute, 2, fill)
    if name == "SS":
        return _number(m.second, 2, fill)
    if name in ("MS", "FF3"):
        return f"{_fraction(m) // 1000:03d}" if m.us >= 0 else f"-{_fraction(m) // 1000:03d}"
    if name in ("US", "FF6"):
        return f"{m.us:06d}" if m.us >= 0 else f"-{-m.us:06d}"
    if name.startswith("FF"):
        return f"{_fraction(m):06d}"[: int(name[2])]
    if name in ("SSSS", "SSSSS"):
        return str(m.hour * 3600 + m.minute * 60 + m.second)
    if name.upper().replace(".", "") in ("AM", "PM"):
        late = m.hour % 24 >= 12
        shown = ("P.M." if late else "A.M.") if "." in name else ("PM" if late else "AM")
        return shown.lower() if name.islower() else shown
    if name in ("TZ", "tz"):
        return m.zone.lower() if name == "tz" else m.zone
    if name in ("OF", "TZH", "TZM"):
        hours, minutes = divmod(abs(m.offset_s) // 60, 60)
        sign = "-" if m.offset_s < 0 else "+"
        if name == "TZM":
            return f"{minutes:02d}"
        return f"{sign}{hours:02d}" + (f":{minutes:02d}" if name == "OF" and minutes else "")
    return None


def _fraction(m: _Moment) -> int:
    return abs(m.us)


def _calendar(part: FormatPart, m: _Moment) -> str:
    name, fill = part.name, part.fill
    if name.upper().replace(".", "") in ("AD", "BC"):
        before = not m.is_interval and m.year <= 0
        shown = ("B.C." if before else "A.D.") if "." in name else ("BC" if before else "AD")
        return shown.lower() if name.islower() else shown
    if m.is_interval:
        return _of_interval(part, m)
    if name in ("DAY", "Day", "day"):
        return _name(name, DAYS[weekday(m.days)], 9, fill)
    if name in ("DY", "Dy", "dy"):
        return _name(name, DAYS[weekday(m.days)][:3], 0, fill)
    if name == "DDD":
        return _number(day_of_year(m.days), 3, fill)
    if name == "IDDD":
        year, _ = iso_week(m.days)
        return _number(m.days - iso_week_start(year, 1) + 1, 3, fill)
    if name == "D":
        return str(weekday(m.days) + 1)
    if name == "ID":
        return str(weekday(m.days) or 7)
    if name == "WW":
        return _number((day_of_year(m.days) - 1) // 7 + 1, 2, fill)
    if name == "IW":
        return _number(iso_week(m.days)[1], 2, fill)
    if name == "W":
        return str((m.day - 1) // 7 + 1)
    if name == "Q":
        return str((m.month - 1) // 3 + 1)
    if name == "J":
        return str(m.days + 2_440_588)
    if name in ("IYYY", "IYY", "IY", "I"):
        year = iso_week(m.days)[0]
        year = year if year > 0 else 1 - year
        return _number(year if name == "IYYY" else year % 10 ** len(name), len(name), fill)
    raise ValueError(f"format {name} is not supported")


def _of_interval(part: FormatPart, m: _Moment) -> str:
    name = part.name
    if name == "DDD":
        return _number(m.year * 360 + m.month * 30 + m.day, 3, part.fill)
    if name == "IDDD":
        return _number(m.year * 360 + m.month * 30 + m.day, 3, part.fill)
    if name == "WW":
        return _number((m.year * 360 + m.month * 30 + m.day - 1) // 7 + 1, 2, part.fill)
    if name == "W":
        return str((m.day - 1) // 7 + 1)
    if name == "Q":
        return str((m.month - 1) // 3 + 1) if m.month else ""
    if name == "J":
        return str(_julian(m.year, m.month, m.day))
    return _number(m.year if name == "IYYY" else m.year % 10 ** len(name), len(name), part.fill)
