"""Windows: how `window()` groups the rows of a key by event time.

>>> from millpond.windows import tumbling, sliding, sessions, calendar
>>> tumbling("1h"), sessions("10m")
(Tumbling(size_us=3600000000, offset_us=0), Gap(gap_us=600000000))

Sizes are durations: "10s", "250ms", "5m", "1h", "2d", seconds, or a timedelta.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Iterable
from typing import get_args

from millpond.arguments.call_errors import need_number
from millpond.arguments.durations import Duration, is_duration, microseconds
from millpond.errors import InvalidError, nearest
from millpond.flow.window_kinds import Counting, GapExpression, Windows
from millpond.kernels.calendar_windows import Calendar, CalendarUnit
from millpond.kernels.custom_windows import CustomWindows, Instants
from millpond.kernels.event_time import LIMIT_US
from millpond.kernels.python_rows import Row
from millpond.kernels.slices import check_windows_per_row
from millpond.kernels.window_assigners import Everything, Gap, Sliding, Tumbling, WindowAssigner

__all__ = [
    "WindowAssigner",
    "Windows",
    "calendar",
    "counting",
    "custom",
    "everything",
    "sessions",
    "sliding",
    "tumbling",
]


def tumbling(size: Duration, offset: Duration = 0) -> WindowAssigner:
    """Windows of one size that follow each other without gaps, from 1970-01-01 UTC plus an offset.

    >>> tumbling("10s", offset="2s")
    Tumbling(size_us=10000000, offset_us=2000000)
    >>> tumbling("1d", offset="-8h")  # days of UTC+8
    Tumbling(size_us=86400000000, offset_us=-28800000000)
    """
    return Tumbling(_positive("the size", size), _offset(offset))


def sliding(size: Duration, slide: Duration, offset: Duration = 0) -> WindowAssigner:
    """Windows of one size that start at a fixed interval; a row is in size / slide of them.

    A slide above the size leaves gaps: rows between two windows are in none.

    >>> sliding("1h", "5m")
    Sliding(size_us=3600000000, slide_us=300000000, offset_us=0)
    """
    windows = Sliding(_positive("the size", size), _positive("the slide", slide), _offset(offset))
    check_windows_per_row(windows, None, sliced=True)
    return windows


def sessions(gap: Duration) -> WindowAssigner | GapExpression:
    """Windows of rows that follow each other within less than a gap.

    The gap is a duration, or an SQL expression of the row: an interval, or a number of seconds.

    >>> sessions("10m")
    Gap(gap_us=600000000)
    >>> sessions("CASE WHEN tv THEN 3600 ELSE 600 END")
    GapExpression(expression='CASE WHEN tv THEN 3600 ELSE 600 END')
    """
    if isinstance(gap, str) and not is_duration(gap):
        if not gap.strip():
            raise InvalidError(
                "the gap of sessions is empty",
                hint='a duration such as "10m", or an SQL expression of the row',
            )
        return GapExpression(gap)
    return Gap(_positive("the gap", gap))


def custom(
    assign: Callable[[Row], Iterable[Instants]],
    merge: Callable[[list[Instants]], Iterable[Instants]] | None = None,
) -> WindowAssigner:
    """Windows that your function returns for each row: pairs of start and end, as datetimes.

    `merge` gets the windows of a key, sorted by time, and returns those that they become.  Each window that
    it gets must be within exactly one of them.

    >>> import datetime
    >>> shift = datetime.timedelta(hours=8)
    >>> custom(lambda row: [(row.begins, row.begins + shift)]).merges
    False
    """
    for function in (assign, *(() if merge is None else (merge,))):
        if not callable(function):
            raise InvalidError(
                f"{function!r} is no function"[:200], hint="custom(lambda row: [(start, end)])"
            )
    return CustomWindows(assign, merge)


def counting(n: int, step: int | None = None, timeout: Duration | None = None) -> Counting:
    """Windows of `n` rows of a key, in the order of their arrival, that start every `step` rows.

    The columns window_start and window_end are numbers of rows.  With `on_close` a window is emitted when it
    is full, or `timeout` after its first row.

    >>> counting(100)
    Counting(n=100, step=100, timeout_us=None)
    """
    need_number("the number of rows", n, 1)
    if step is not None:
        need_number("the step", step, 1)
    if timeout is not None and step not in (None, n):
        raise InvalidError(
            "a timeout needs windows that do not overlap", hint="leave the step or the timeout out"
        )
    return Counting(n, step or n, None if timeout is None else _positive("the timeout", timeout))


def calendar(unit: CalendarUnit, zone: str = "UTC") -> WindowAssigner:
    """Days, weeks (from Monday), months or years of a time zone, correct across changes of the clocks.

    >>> calendar("month", zone="Europe/Berlin")
    Calendar(unit='month', zone='Europe/Berlin')
    """
    if unit not in get_args(CalendarUnit):
        raise InvalidError(
            f"no calendar unit {unit!r}", hint=f"units are {', '.join(get_args(CalendarUnit))}"
        )
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        known = nearest(str(zone), sorted(zoneinfo.available_timezones()), 'for example "Europe/Berlin"')
        raise InvalidError(f"no time zone {zone!r}", hint=known) from error
    return Calendar(unit, zone)


def everything() -> WindowAssigner:
    """One window with all rows of a key, which never closes.

    >>> everything()
    Everything()
    """
    return Everything()


def _offset(duration: Duration) -> int:
    """An offset in microseconds; it may be negative, also as a text."""
    text = duration.strip() if isinstance(duration, str) else ""
    if text.startswith("-") and not text.startswith("--"):
        return -microseconds(text.removeprefix("-"))
    return microseconds(duration)


def _positive(what: str, duration: Duration) -> int:
    us = microseconds(duration)
    if not 1 <= us <= LIMIT_US:
        raise InvalidError(f"{what} of a window must be positive", detail=f"got {duration!r}")
    return us
