"""Casts of texts to dates and times, and the one form in which literals are given to DuckDB."""

from __future__ import annotations

from millpond.kernels.postgres.calendar import DAY_US, FOREVER_DAYS, FOREVER_US, fields_of
from millpond.kernels.postgres.rows import row_function
from millpond.kernels.postgres.text_output import fraction_text, time_text
from millpond.kernels.postgres.time_input import CLOCK_WORDS, ReadTime, read_time
from millpond.kernels.postgres.zone_names import is_constant, offset_s
from millpond.kernels.time_zones import offset_text


def _without_clock(text: str, kind: str) -> ReadTime:
    found = read_time(text, kind)
    if found.word in CLOCK_WORDS:
        raise ValueError(f'the text "{text}" depends on the clock: only a literal in the query may say so')
    return found


@row_function("pg.date_in.1", ("VARCHAR",), "DATE")
def date_in(text: str) -> int:
    found = _without_clock(text, "date")
    if abs(found.us) == FOREVER_US:
        return FOREVER_DAYS if found.us > 0 else -FOREVER_DAYS
    return found.us // DAY_US


@row_function("pg.timestamp_in.1", ("VARCHAR",), "TIMESTAMP")
def timestamp_in(text: str) -> int:
    return _without_clock(text, "timestamp").us


@row_function("pg.timestamptz_in.1", ("VARCHAR", "VARCHAR"), "TIMESTAMPTZ")
def timestamptz_in(text: str, zone: str) -> int:
    return _without_clock(text, "timestamp with time zone").utc_us(zone)


@row_function("pg.time_in.1", ("VARCHAR",), "TIME")
def time_in(text: str) -> int:
    return _without_clock(text, "time").us


@row_function("pg.timetz_in.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def timetz_in(text: str, zone: str) -> str:
    """The time as a text that DuckDB reads; one without a zone has that of the session."""
    found = _without_clock(text, "time with time zone")
    if found.zone is None and not is_constant(zone):
        raise ValueError(f'a time without its zone: "{text}" in the time zone {zone} depends on the day')
    return _clock_with_zone(found, zone)


def _clock_with_zone(found: ReadTime, zone: str) -> str:
    known = zone if found.zone is None else found.zone
    return time_text(found.us) + offset_text(offset_s(known, found.us))


def plain_text(found: ReadTime, kind: str) -> str:
    """A value as a text that DuckDB reads as it is meant; without a zone if it has none.

    >>> kind = "timestamp with time zone"
    >>> plain_text(read_time("Jan 8 04:05:06 99 BC PST", kind), kind)
    '0099-01-08 (BC) 12:05:06+00'
    >>> plain_text(read_time("1/8/1999", "date"), "date")
    '1999-01-08'
    """
    if found.word in ("infinity", "-infinity"):
        return str(found.word)
    if kind == "time":
        return time_text(found.us)
    if kind == "time with time zone":
        return _clock_with_zone(found, "UTC")
    zoned = kind == "timestamp with time zone" and (found.zone is not None or found.word == "epoch")
    at = fields_of(found.utc_us("UTC") if zoned else found.us)
    era = "" if at.year > 0 else " (BC)"
    date = f"{at.year if at.year > 0 else 1 - at.year:04}-{at.month:02}-{at.day:02}{era}"
    if kind == "date":
        return date
    clock = f"{at.hour:02}:{at.minute:02}:{at.second:02}{fraction_text(at.us)}"
    return f"{date} {clock}{'+00' if zoned else ''}"
