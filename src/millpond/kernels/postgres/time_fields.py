"""The fields of dates, times and intervals: extract and date_part."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from millpond.kernels.postgres.calendar import (
    DAY_US,
    FOREVER_US,
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    date_of,
    day_of_year,
    iso_week,
    weekday,
)
from millpond.kernels.postgres.rows import Interval, row_function

_NAMES = {
    "microseconds": "us usec usecs usecond useconds microsecond microseconds",
    "milliseconds": "ms msec msecs msecond mseconds millisecond milliseconds",
    "second": "s sec secs second seconds",
    "minute": "m min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "d day days",
    "month": "mon mons month months",
    "year": "y yr yrs year years",
    "decade": "dec decs decade decades",
    "century": "c cent century centuries",
    "millennium": "mil mils millennia millennium",
    "week": "w week weeks",
    "quarter": "qtr quarter quarters",
    "dow": "dow",
    "doy": "doy",
    "isodow": "isodow",
    "isoyear": "isoyear",
    "epoch": "epoch",
    "julian": "julian jd",
    "timezone": "timezone",
    "timezone_hour": "timezone_h timezone_hour",
    "timezone_minute": "timezone_m timezone_minute",
}
FIELDS = {alias: name for name, aliases in _NAMES.items() for alias in aliases.split()}
# Fields without a fraction, which DuckDB computes as PostgreSQL does.
WHOLE = frozenset(
    [
        "year",
        "month",
        "day",
        "hour",
        "minute",
        "microseconds",
        "dow",
        "isodow",
        "doy",
        "week",
        "isoyear",
        "quarter",
    ]
)
_OF_CLOCK = frozenset(["microseconds", "milliseconds", "second", "minute", "hour", "epoch"])
_OF_INTERVALS = _OF_CLOCK | frozenset(["day", "month", "year", "decade", "century", "millennium", "quarter"])


def field_named(name: str, kind: str) -> str:
    found = FIELDS.get(name.lower())
    if found is None:
        raise ValueError(f'unit "{name}" not recognized for type {kind}')
    return found


def _unsupported(field: str, kind: str) -> ValueError:
    return ValueError(f'unit "{field}" not supported for type {kind}')


def _of_clock(field: str, us: int) -> Decimal | int:
    """A field of a time of day, or of the time of an interval: negative if that is."""
    sign = -1 if us < 0 else 1
    size = abs(us)
    in_minute = size % MINUTE_US * sign
    if field == "microseconds":
        return in_minute
    if field == "milliseconds":
        return Decimal(in_minute) / 1000
    if field == "second":
        return Decimal(in_minute) / SECOND_US
    if field == "minute":
        return size // MINUTE_US % 60 * sign
    return size // HOUR_US * sign


def timestamp_field(field: str, us: int, offset_s: int | None) -> Decimal | int | None:
    """`offset_s` is that of the session's zone for a timestamptz, whose local time `us` is."""
    kind = "timestamp without time zone" if offset_s is None else "timestamp with time zone"
    if abs(us) == FOREVER_US:
        return _of_infinity(field, us)
    days, clock = divmod(us, DAY_US)
    year, month, day = date_of(days)
    if field == "epoch":
        return Decimal(us - (offset_s or 0) * SECOND_US) / SECOND_US
    if field in _OF_CLOCK:
        return _of_clock(field, clock)
    if field.startswith("timezone"):
        if offset_s is None:
            raise _unsupported(field, kind)
        return _of_zone(field, offset_s)
    if field == "julian":
        return Decimal(days + 2_440_588) + Decimal(clock) / DAY_US
    shown = year if year > 0 else year - 1
    found: dict[str, Any] = {
        "year": shown,
        "month": month,
        "day": day,
        "quarter": (month - 1) // 3 + 1,
        "decade": year // 10,
        "century": (shown + 99) // 100 if shown > 0 else -((99 - (shown - 1)) // 100),
        "millennium": (shown + 999) // 1000 if shown > 0 else -((999 - (shown - 1)) // 1000),
    }
    if field in found:
        return int(found[field])
    if field in ("week", "isoyear"):
        of_year, week = iso_week(days)
        return week if field == "week" else of_year if of_year > 0 else of_year - 1
    return {"dow": weekday(days), "isodow": weekday(days) or 7, "doy": day_of_year(days)}[field]


def _of_infinity(field: str, us: int) -> Decimal | None:
    grows = field in ("year", "decade", "century", "millennium", "julian", "isoyear", "epoch")
    return Decimal("Infinity" if us > 0 else "-Infinity") if grows else None


def _of_zone(field: str, offset_s: int) -> int:
    if field == "timezone":
        return offset_s
    sign = -1 if offset_s < 0 else 1
    minutes = abs(offset_s) // 60
    return sign * (minutes // 60 if field == "timezone_hour" else minutes % 60)


def interval_field(field: str, value: Interval) -> Decimal | int:
    months, days, us = value
    if field not in _OF_INTERVALS:
        raise _unsupported(field, "interval")
    sign = -1 if months < 0 else 1
    years, rest = abs(months) // 12 * sign, abs(months) % 12 * sign
    if field == "epoch":
        seconds = Decimal("365.25") * 86400 * years + (rest * 30 + days) * 86400
        return seconds + Decimal(us) / SECOND_US
    if field in _OF_CLOCK:
        return _of_clock(field, us)
    size = abs(years)
    found = {
        "day": days,
        "month": rest,
        "year": years,
        "quarter": rest // 3 + 1 if rest >= 0 else -(abs(rest) // 3) + 1,
        "decade": size // 10 * sign,
        "century": size // 100 * sign,
        "millennium": size // 1000 * sign,
    }
    return found[field]


def time_field(field: str, us: int, kind: str) -> Decimal | int:
    if field not in _OF_CLOCK:
        raise _unsupported(field, kind)
    return Decimal(us) / SECOND_US if field == "epoch" else _of_clock(field, us)


def timetz_field(field: str, text: str) -> Decimal | int:
    """`text` is a timetz as DuckDB writes it: `13:45:30.25+02:30`."""
    us, offset_s = read_timetz(text)
    if field.startswith("timezone"):
        return _of_zone(field, offset_s)
    if field == "epoch":
        return Decimal(us - offset_s * SECOND_US) / SECOND_US
    return time_field(field, us, "time with time zone")


def read_timetz(text: str) -> tuple[int, int]:
    at = max(text.rfind("+"), text.rfind("-"))
    clock, zone = text[:at], text[at:]
    hour, minute, second = clock.split(":")
    us = int(hour) * HOUR_US + int(minute) * MINUTE_US + int(Decimal(second) * SECOND_US)
    parts = [int(p) for p in zone[1:].split(":")] + [0, 0]
    offset = parts[0] * 3600 + parts[1] * 60 + parts[2]
    return us, -offset if zone[0] == "-" else offset


def _text(value: Decimal | int | None) -> str | None:
    return None if value is None else f"{value:f}" if isinstance(value, Decimal) else str(value)


@row_function("pg.extract_timestamp.1", ("VARCHAR", "TIMESTAMP"), "VARCHAR")
def extract_timestamp(field: str, us: int) -> str | None:
    return _text(timestamp_field(field_named(field, "timestamp without time zone"), us, None))


@row_function("pg.extract_timestamptz.1", ("VARCHAR", "TIMESTAMP", "BIGINT"), "VARCHAR")
def extract_timestamptz(field: str, us: int, offset_s: int) -> str | None:
    return _text(timestamp_field(field_named(field, "timestamp with time zone"), us, offset_s))


@row_function("pg.extract_date.1", ("VARCHAR", "DATE"), "VARCHAR")
def extract_date(field: str, days: int) -> str | None:
    name = field_named(field, "date")
    if name in _OF_CLOCK - {"epoch"} or name.startswith("timezone"):
        raise _unsupported(name, "date")
    us = days * DAY_US if abs(days) < (1 << 31) - 1 else FOREVER_US if days > 0 else -FOREVER_US
    return _text(timestamp_field(name, us, None))


@row_function("pg.extract_interval.1", ("VARCHAR", "INTERVAL"), "VARCHAR")
def extract_interval(field: str, value: Interval) -> str | None:
    return _text(interval_field(field_named(field, "interval"), value))


@row_function("pg.extract_time.1", ("VARCHAR", "TIME"), "VARCHAR")
def extract_time(field: str, us: int) -> str | None:
    return _text(time_field(field_named(field, "time without time zone"), us, "time without time zone"))


@row_function("pg.extract_timetz.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def extract_timetz(field: str, text: str) -> str | None:
    return _text(timetz_field(field_named(field, "time with time zone"), text))
