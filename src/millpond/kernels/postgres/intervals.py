"""Functions over intervals and between times: age, justify_*, make_*, date_trunc of intervals."""

from __future__ import annotations

import math

from millpond.kernels.postgres.calendar import (
    DAY_US,
    FIRST_DAY,
    FOREVER_US,
    HOUR_US,
    LAST_DAY,
    MINUTE_US,
    SECOND_US,
    checked_date,
    fields_of,
    month_days,
)
from millpond.kernels.postgres.rows import Interval, row_function
from millpond.kernels.postgres.time_fields import field_named

_MONTHS = {"year": 12, "decade": 120, "century": 1200, "millennium": 12000, "quarter": 3, "month": 1}
_CLOCK = {"hour": HOUR_US, "minute": MINUTE_US, "second": SECOND_US, "milliseconds": 1000, "microseconds": 1}


@row_function("pg.age.1", ("TIMESTAMP", "TIMESTAMP"), "INTERVAL")
def age(later: int, earlier: int) -> Interval:
    """The difference in years, months, days and time, as people count it."""
    if FOREVER_US in (abs(later), abs(earlier)):
        raise ValueError("timestamp out of range")
    return _age(later, earlier)


@row_function("pg.age.2", ("TIMESTAMP", "TIMESTAMP"), "INTERVAL")
def age_of_any(later: int, earlier: int) -> Interval:
    """The same; infinity counts as the last microsecond that PostgreSQL has, and -infinity as the first."""
    return _age(_finite(later), _finite(earlier))


_FROM_2000_US = 10_957 * DAY_US  # PostgreSQL counts from there


def _finite(us: int) -> int:
    if abs(us) != FOREVER_US:
        return us
    return _FROM_2000_US + (us if us > 0 else us - 1)


def _age(later: int, earlier: int) -> Interval:
    sign = -1 if later < earlier else 1
    a, b = (fields_of(later), fields_of(earlier)) if sign > 0 else (fields_of(earlier), fields_of(later))
    us = (
        ((a.hour - b.hour) * 60 + a.minute - b.minute) * MINUTE_US
        + (a.second - b.second) * SECOND_US
        + a.us
        - b.us
    )
    days, months = a.day - b.day, (a.year - b.year) * 12 + a.month - b.month
    if us < 0:
        us += DAY_US
        days -= 1
    while days < 0:
        days += month_days(b.year, b.month)  # of the earlier one
        months -= 1
    return sign * months, sign * days, sign * us


@row_function("pg.justify_hours.1", ("INTERVAL",), "INTERVAL")
def justify_hours(value: Interval) -> Interval:
    months, days, us = value
    more, us = _toward_zero(us, DAY_US)
    days += more
    if days > 0 and us < 0:
        days, us = days - 1, us + DAY_US
    elif days < 0 and us > 0:
        days, us = days + 1, us - DAY_US
    return months, days, us


@row_function("pg.justify_days.1", ("INTERVAL",), "INTERVAL")
def justify_days(value: Interval) -> Interval:
    months, days, us = value
    more, days = _toward_zero(days, 30)
    months += more
    if months > 0 and days < 0:
        months, days = months - 1, days + 30
    elif months < 0 and days > 0:
        months, days = months + 1, days - 30
    return months, days, us


@row_function("pg.justify_interval.1", ("INTERVAL",), "INTERVAL")
def justify_interval(value: Interval) -> Interval:
    months, days, us = value
    if (days > 0 and us > 0) or (days < 0 and us < 0):
        more, days = _toward_zero(days, 30)
        months += more
    more, us = _toward_zero(us, DAY_US)
    days += more
    more, days = _toward_zero(days, 30)
    months += more
    if months > 0 and (days < 0 or (days == 0 and us < 0)):
        months, days = months - 1, days + 30
    elif months < 0 and (days > 0 or (days == 0 and us > 0)):
        months, days = months + 1, days - 30
    if days > 0 and us < 0:
        days, us = days - 1, us + DAY_US
    elif days < 0 and us > 0:
        days, us = days + 1, us - DAY_US
    return months, days, us


def _toward_zero(a: int, b: int) -> tuple[int, int]:
    whole = abs(a) // b * (1 if a >= 0 else -1)
    return whole, a - whole * b


@row_function("pg.trunc_interval.1", ("VARCHAR", "INTERVAL"), "INTERVAL")
def trunc_interval(unit: str, value: Interval) -> Interval:
    months, days, us = value
    name = field_named(unit, "interval")
    if name in _MONTHS:
        return months - _toward_zero(months, _MONTHS[name])[1], 0, 0
    if name == "day":
        return months, days, 0
    if name in _CLOCK:
        return months, days, us - _toward_zero(us, _CLOCK[name])[1]
    raise ValueError(f'unit "{unit}" not supported for type interval')


@row_function("pg.make_date.1", ("BIGINT", "BIGINT", "BIGINT"), "DATE")
def make_date(year: int, month: int, day: int) -> int:
    return _date(year, month, day)


def _date(year: int, month: int, day: int) -> int:
    found = checked_date(year if year > 0 else year + 1, month, day) if year else None
    if found is None:
        raise ValueError(f"date field value out of range: {year}-{month:02d}-{day:02d}")
    return found


def _clock(hour: int, minute: int, second: float) -> int:
    us = _rounded(second * SECOND_US) if math.isfinite(second) else -1
    in_range = 0 <= hour <= 24 and 0 <= minute < 60 and 0 <= us <= MINUTE_US
    total = hour * HOUR_US + minute * MINUTE_US + us
    if not in_range or total > DAY_US:
        raise ValueError(f"time field value out of range: {hour}:{minute:02d}:{second:02g}")
    return total


def _rounded(value: float) -> int:
    return round(value)


@row_function("pg.make_time.1", ("BIGINT", "BIGINT", "DOUBLE"), "TIME")
def make_time(hour: int, minute: int, second: float) -> int:
    return _clock(hour, minute, second)


@row_function(
    "pg.make_timestamp.1", ("BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "DOUBLE"), "TIMESTAMP"
)
def make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: float) -> int:
    days = _date(year, month, day)
    if not FIRST_DAY <= days <= LAST_DAY:
        raise ValueError("timestamp out of range")
    return days * DAY_US + _clock(hour, minute, second)


@row_function(
    "pg.make_interval.1", ("BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "DOUBLE"), "INTERVAL"
)
def make_interval(
    years: int, months: int, weeks: int, days: int, hours: int, minutes: int, seconds: float
) -> Interval:
    if not math.isfinite(seconds):
        raise ValueError("interval out of range")
    us = hours * HOUR_US + minutes * MINUTE_US + _rounded(seconds * SECOND_US)
    return years * 12 + months, weeks * 7 + days, us
