"""Windows of a calendar: the days, weeks, months and years of a time zone, for many times at once."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from millpond.kernels.event_time import FIRST_US, LAST_US
from millpond.kernels.window_assigners import Assigned, Ints, WindowAssigner

CalendarUnit = Literal["day", "week", "month", "year"]

_DAY_US = 86_400_000_000
_ORDINAL_1970 = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Calendar(WindowAssigner):
    """Days, weeks (from Monday), months or years of a time zone.

    A day begins with the first moment of its date, so a day at a change of the clocks has 23 or 25 hours.
    """

    unit: CalendarUnit
    zone: str = "UTC"

    def assign(self, at: Ints, rows: pa.Table) -> Assigned:
        days = at // _DAY_US
        distinct, inverse = np.unique(days, return_inverse=True)
        # A time beyond the calendar gets a window beyond it.
        starts, ends = np.full(len(at), FIRST_US - 1), np.full(len(at), LAST_US + 1)
        # The local date of a time is its UTC date or one next to it.
        done = np.zeros(len(at), np.bool_)
        for shift in (-1, 0, 1):
            bounds = np.array([_bounds(self.unit, self.zone, int(day) + shift) for day in distinct], np.int64)
            start, end = bounds[:, 0][inverse], bounds[:, 1][inverse]
            inside = ~done & (start <= at) & (at < end)
            starts[inside], ends[inside] = start[inside], end[inside]
            done |= inside
        return Assigned(np.arange(len(at)), starts, ends)

    @property
    def width_us(self) -> int:
        return _DAY_US


@lru_cache(maxsize=100_000)
def _bounds(unit: CalendarUnit, zone: str, day: int) -> tuple[int, int]:
    """The start and end, in microseconds, of the calendar unit that contains a date (days since 1970)."""
    ordinal = min(max(day + _ORDINAL_1970, 1), datetime.date.max.toordinal())
    date = datetime.date.fromordinal(ordinal)
    if unit == "week":
        first = ordinal - date.weekday()
        return _begin(first, zone), _begin(first + 7, zone)
    if unit == "month":
        after = (date.year + 1, 1) if date.month == 12 else (date.year, date.month + 1)
        return _begin(date.replace(day=1).toordinal(), zone), _begin(_ordinal(*after), zone)
    if unit == "year":
        return _begin(_ordinal(date.year, 1), zone), _begin(_ordinal(date.year + 1, 1), zone)
    return _begin(ordinal, zone), _begin(ordinal + 1, zone)


def _ordinal(year: int, month: int) -> int:
    last = datetime.date.max.toordinal() + 1
    return last if year > 9999 else datetime.date(year, month, 1).toordinal()


@lru_cache(maxsize=100_000)
def _begin(ordinal: int, zone: str) -> int:
    """The first moment of a local date, in microseconds since 1970."""
    naive_us = (ordinal - _ORDINAL_1970) * _DAY_US
    if not 2 <= ordinal < datetime.date.max.toordinal():
        return naive_us  # zones are of no interest at the ends of the calendar
    date = datetime.date.fromordinal(ordinal)
    local = datetime.datetime.combine(date, datetime.time(), ZoneInfo(zone))
    moment = local.astimezone(datetime.UTC)
    # Midnight does not exist where clocks go forward at midnight: the day begins when they have.
    if moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) != local.replace(tzinfo=None):
        moment = _after_gap(local)
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


def _after_gap(local: datetime.datetime) -> datetime.datetime:
    """The moment at which the clocks jumped over a local time that does not exist."""
    before = local.replace(fold=1).astimezone(datetime.UTC)
    after = local.replace(fold=0).astimezone(datetime.UTC)
    low, high = min(before, after), max(before, after)
    zone = local.tzinfo
    while high - low > datetime.timedelta(microseconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(zone).replace(tzinfo=None) < local.replace(tzinfo=None):
            low = middle
        else:
            high = middle
    return high
