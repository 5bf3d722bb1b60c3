"""Calendar windows around changes of clocks: the local date of every time says its window."""

from __future__ import annotations

import datetime
import itertools
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from millpond.kernels.calendar_windows import Calendar, CalendarUnit
from millpond.kernels.event_time import FIRST_US, LAST_US

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
US = datetime.timedelta(microseconds=1)
MINUTE_US = 60_000_000

# (zone, a day around which the clocks change)
CHANGES = [
    ("Europe/Berlin", "2024-03-31"),
    ("Europe/Berlin", "2024-10-27"),
    ("America/Santiago", "2024-09-08"),  # midnight does not exist
    ("Asia/Beirut", "2024-03-31"),  # nor here
    ("America/Toronto", "1919-03-30"),  # the hour from half past eleven does not exist
    ("America/Havana", "2024-11-03"),  # one o'clock comes twice, at midnight summer time
    ("Australia/Lord_Howe", "2024-04-07"),  # half an hour
    ("Pacific/Apia", "2011-12-30"),  # the whole day does not exist
    ("Asia/Kathmandu", "2024-01-01"),
    ("UTC", "2024-02-29"),
]


def unit_of(unit: CalendarUnit, date: datetime.date) -> Any:
    if unit == "week":
        return date.isocalendar()[:2]
    return {"day": date, "month": (date.year, date.month), "year": date.year}[unit]


def windows(unit: CalendarUnit, zone: str, at: list[int]) -> list[tuple[int, int]]:
    found = Calendar(unit, zone).assign(np.array(at, np.int64), pa.table({}))
    assert found.row.tolist() == list(range(len(at)))
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


@pytest.mark.parametrize("unit", ["day", "week", "month", "year"])
@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_times_of_one_local_date_are_in_one_window(zone: str, day: str, unit: CalendarUnit) -> None:
    noon = (datetime.datetime.fromisoformat(f"{day}T12:00:00+00:00") - EPOCH) // US
    at = [noon + n * 15 * MINUTE_US + d for n in range(-4 * 72, 4 * 72) for d in (-1, 0)]
    found = windows(unit, zone, at)
    units = [unit_of(unit, (EPOCH + one * US).astimezone(ZoneInfo(zone)).date()) for one in at]
    assert all(start <= one < end for one, (start, end) in zip(at, found, strict=True))
    pairs = list(zip(units, found, strict=True))
    assert len(set(pairs)) == len({u for u, _ in pairs}) == len({w for _, w in pairs}), "one window a unit"
    edges = sorted({w for _, w in pairs})
    assert all(before[1] == after[0] for before, after in itertools.pairwise(edges)), "no gap"
    # The microsecond before a window is in the one before it.
    for start, _ in edges:
        (before,) = windows(unit, zone, [start - 1])
        assert before[1] == start


@pytest.mark.parametrize(
    ("unit", "zone", "at", "hours"),
    [
        ("day", "Europe/Berlin", "2024-03-31T12:00", 23),
        ("day", "Europe/Berlin", "2024-10-27T12:00", 25),
        ("day", "Pacific/Apia", "2011-12-29T12:00", 24),
        ("week", "Europe/Berlin", "2024-03-31T12:00", 7 * 24 - 1),
        ("month", "UTC", "2024-02-10T00:00", 29 * 24),
        ("month", "Asia/Tokyo", "2023-12-31T20:00", 31 * 24),
        ("year", "UTC", "2024-12-31T23:59", 366 * 24),
    ],
)
def test_the_length_of_a_window(unit: CalendarUnit, zone: str, at: str, hours: int) -> None:
    ((start, end),) = windows(unit, zone, [(datetime.datetime.fromisoformat(f"{at}+00:00") - EPOCH) // US])
    assert (end - start) / 3_600_000_000 == hours


def test_weeks_begin_on_monday() -> None:
    ((start, _),) = windows(
        "week", "UTC", [(datetime.datetime(2024, 3, 31, tzinfo=datetime.UTC) - EPOCH) // US]
    )
    assert (EPOCH + start * US).isoformat() == "2024-03-25T00:00:00+00:00"


@pytest.mark.parametrize("unit", ["day", "week", "month", "year"])
def test_the_ends_of_the_calendar(unit: CalendarUnit) -> None:
    """A window that does not end within the calendar is beyond it: its rows become error rows."""
    (first, last, beyond) = windows(unit, "Asia/Tokyo", [FIRST_US, LAST_US, LAST_US + 1])
    assert first[0] == FIRST_US
    assert last[1] > LAST_US
    assert beyond[1] > LAST_US
