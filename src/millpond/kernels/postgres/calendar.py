"""The proleptic Gregorian calendar over all of PostgreSQL's years, which Python's datetime does not have."""

from __future__ import annotations

from typing import NamedTuple

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000
MINUTE_US = 60_000_000
SECOND_US = 1_000_000
FOREVER_US = (1 << 63) - 1  # infinity of timestamps
FOREVER_DAYS = (1 << 31) - 1  # infinity of dates
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
LAST_DAY = 107_119_892  # 294276-12-31: the last day of a timestamp
FIRST_DAY = -2_440_588  # 4714-11-24 BC: the first one, Julian day 0


class CalendarFields(NamedTuple):
    """A point in time, taken apart; the year before 1 is 0."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    us: int


def days_of(year: int, month: int, day: int) -> int:
    """The number of a day; 1970-01-01 is 0.

    >>> days_of(1970, 1, 1), days_of(2000, 2, 29), days_of(0, 12, 31)
    (0, 11016, -719163)
    """
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_of(days: int) -> tuple[int, int, int]:
    """The year, month and day of a number; the inverse of `days_of`.

    >>> date_of(11016)
    (2000, 2, 29)
    """
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, day


def fields_of(us: int) -> CalendarFields:
    days, rest = divmod(us, DAY_US)
    return CalendarFields(*date_of(days), *clock_of(rest))


def clock_of(us: int) -> tuple[int, int, int, int]:
    """Hour, minute, second and microsecond of a time of day."""
    seconds, rest = divmod(us, SECOND_US)
    return seconds // 3600, seconds // 60 % 60, seconds % 60, rest


def month_days(year: int, month: int) -> int:
    """
    >>> month_days(2024, 2), month_days(1900, 2)
    (29, 28)
    """
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _MONTH_DAYS[month - 1] + leap


def checked_date(year: int, month: int, day: int) -> int | None:
    """The number of a day; None if there is no such day."""
    if not 1 <= month <= 12 or not 1 <= day <= month_days(year, month):
        return None
    return days_of(year, month, day)


def months_later(days: int, months: int) -> int:
    """The same day of another month, or its last day."""
    year, month, day = date_of(days)
    year, month = divmod(year * 12 + month - 1 + months, 12)
    return days_of(year, month + 1, min(day, month_days(year, month + 1)))


def day_of_year(days: int) -> int:
    return days - days_of(date_of(days)[0], 1, 1) + 1


def weekday(days: int) -> int:
    """Sunday is 0."""
    return (days + 4) % 7


def iso_week(days: int) -> tuple[int, int]:
    """The ISO year and week of a day.

    >>> iso_week(days_of(2021, 1, 3)), iso_week(days_of(2020, 12, 31))
    ((2020, 53), (2020, 53))
    """
    thursday = days - (weekday(days) + 6) % 7 + 3
    year = date_of(thursday)[0]
    return year, (thursday - days_of(year, 1, 1)) // 7 + 1


def iso_week_start(year: int, week: int) -> int:
    """The Monday of a week."""
    fourth = days_of(year, 1, 4)
    return fourth - (weekday(fourth) + 6) % 7 + 7 * (week - 1)
