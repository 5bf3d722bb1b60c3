"""Dates and times: texts as Spark casts them, patterns of Java, differences."""

from __future__ import annotations

import calendar
import datetime
import re
import zoneinfo

import pyarrow as pa

from millpond.kernels.spark.java_times import offset_seconds, shown
from millpond.kernels.spark.java_times import read as moment_of_pattern
from millpond.kernels.spark.rows import RefusedValue, by_row

_TIME = pa.timestamp("us")
_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_MOMENT = re.compile(
    r"([+-]?\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?"
    r"\s*(Z|UTC|GMT|(?:UTC|GMT)?[+-]\d{1,2}(?::?\d{1,2}(?::?\d{2})?)?|[A-Za-z]+/[A-Za-z_/]+)?)?)?)?"
)


@by_row("spark.date_of_text.1", ("VARCHAR", "BOOLEAN"), "DATE", pa.date32())
def date_of_text(text: str, strict: bool) -> datetime.date | None:
    made = text_as_date(text)
    if made is None and strict:
        raise RefusedValue(f'cannot cast "{text}" to DATE')
    return made


def text_as_date(text: str) -> datetime.date | None:
    found = _DATE.fullmatch(text.strip())
    try:
        return None if found is None else datetime.date(int(found[1]), int(found[2] or 1), int(found[3] or 1))
    except ValueError:
        return None


@by_row("spark.timestamp_of_text.1", ("VARCHAR", "BOOLEAN", "BOOLEAN"), "TIMESTAMP", _TIME)
def timestamp_of_text(text: str, strict: bool, zoned: bool) -> datetime.datetime | None:
    made = text_as_moment(text, zoned)
    if made is None and strict:
        raise RefusedValue(f'cannot cast "{text}" to TIMESTAMP')
    return made


def text_as_moment(text: str, zoned: bool) -> datetime.datetime | None:
    found = _MOMENT.fullmatch(text.strip())
    try:
        if found is not None:
            year, month, day, hour, minute, second, fraction, zone = found.groups()
            made = datetime.datetime(
                int(year),
                int(month or 1),
                int(day or 1),
                int(hour or 0),
                int(minute or 0),
                int(second or 0),
                int((fraction or "")[:6].ljust(6, "0")),
            )
            return made if zone is None or not zoned else _to_utc(made, zone)
    except (ValueError, OverflowError, zoneinfo.ZoneInfoNotFoundError):
        return None
    return None


def _to_utc(moment: datetime.datetime, zone: str) -> datetime.datetime:
    if "/" in zone:
        return moment.replace(tzinfo=zoneinfo.ZoneInfo(zone)).astimezone(datetime.UTC).replace(tzinfo=None)
    bare = re.sub(r"^(UTC|GMT)(?=[+-])", "", zone)
    if re.fullmatch(r"[+-]\d(:.*)?", bare):
        bare = bare[0] + "0" + bare[1:]
    return moment - datetime.timedelta(seconds=offset_seconds(bare))


@by_row("spark.format_time.1", ("TIMESTAMP", "VARCHAR"), "VARCHAR", pa.string())
def format_time(moment: datetime.datetime, pattern: str) -> str:
    return shown(moment, pattern)


@by_row("spark.parse_time.1", ("VARCHAR", "VARCHAR", "BOOLEAN"), "TIMESTAMP", _TIME)
def parse_time(text: str, pattern: str, strict: bool) -> datetime.datetime | None:
    made = moment_of_pattern(text, pattern)
    if made is None and strict:
        raise RefusedValue(f"{text!r} does not fit the pattern {pattern!r}")
    return made


@by_row("spark.zoned.1", ("TIMESTAMP", "VARCHAR", "VARCHAR"), "TIMESTAMP", _TIME)
def zoned(moment: datetime.datetime, source: str, target: str) -> datetime.datetime:
    """The time on the clock of one zone as the time on the clock of another."""
    try:
        made = moment.replace(tzinfo=_zone(source)).astimezone(_zone(target))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        raise RefusedValue(f"there is no time zone {source!r} or {target!r}") from None
    return made.replace(tzinfo=None)


def _zone(name: str) -> datetime.tzinfo:
    found = re.fullmatch(r"(?:UTC|GMT)?([+-]\d{2}:?\d{2}|[+-]\d{1,2})", name)
    if found is not None:
        bare = found[1] if len(found[1]) != 2 else found[1][0] + "0" + found[1][1:]
        return datetime.timezone(datetime.timedelta(seconds=offset_seconds(bare)))
    return datetime.UTC if name in ("UTC", "Z", "GMT") else zoneinfo.ZoneInfo(name)


@by_row("spark.months_between.1", ("TIMESTAMP", "TIMESTAMP", "BOOLEAN"), "DOUBLE", pa.float64())
def months_between(a: datetime.datetime, b: datetime.datetime, rounded: bool) -> float:
    months = (a.year - b.year) * 12 + a.month - b.month
    last = (
        calendar.monthrange(a.year, a.month)[1] == a.day,
        calendar.monthrange(b.year, b.month)[1] == b.day,
    )
    if a.day == b.day or all(last):
        return float(months)

    def seconds(t: datetime.datetime) -> float:
        return t.hour * 3600 + t.minute * 60 + t.second

    found = months + ((a.day - b.day) * 86400 + seconds(a) - seconds(b)) / (31 * 86400)
    return round(found * 1e8) / 1e8 if rounded else found


_MICROS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}


@by_row("spark.timestamp_diff.1", ("VARCHAR", "TIMESTAMP", "TIMESTAMP"), "BIGINT", pa.int64())
def timestamp_diff(unit: str, a: datetime.datetime, b: datetime.datetime) -> int:
    """The number of whole units from a to b."""
    if unit in _MICROS:
        micros = (b - a) // datetime.timedelta(microseconds=1)
        return abs(micros) // _MICROS[unit] * (1 if micros >= 0 else -1)
    months = (b.year - a.year) * 12 + b.month - a.month
    rest_a, rest_b = (a.day, a.time()), (b.day, b.time())
    if months > 0 and rest_b < rest_a:
        months -= 1
    elif months < 0 and rest_b > rest_a:
        months += 1
    per = {"month": 1, "quarter": 3, "year": 12}[unit]
    return abs(months) // per * (1 if months >= 0 else -1)


@by_row("spark.time_bucket.1", ("INTEGER", "BIGINT", "TIMESTAMP", "TIMESTAMP"), "TIMESTAMP", _TIME)
def time_bucket(
    months: int, micros: int, moment: datetime.datetime, origin: datetime.datetime
) -> datetime.datetime:
    """The start of the bucket of a time; buckets of months start on the origin's day of the month."""
    if (months > 0) == (micros > 0) or months < 0 or micros < 0:
        raise RefusedValue("a bucket needs a positive length, in months or in shorter units")
    if micros:
        return moment - (moment - origin) % datetime.timedelta(microseconds=micros)
    count = ((moment.year - origin.year) * 12 + moment.month - origin.month) // months
    start = _months_later(origin, count * months)
    return start if start <= moment else _months_later(origin, (count - 1) * months)


def _months_later(moment: datetime.datetime, months: int) -> datetime.datetime:
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    return moment.replace(
        year=year, month=month + 1, day=min(moment.day, calendar.monthrange(year, month + 1)[1])
    )
