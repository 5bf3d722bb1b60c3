"""Converts durations to microseconds, and durations to strategies of watermarks."""

from __future__ import annotations

import datetime
import math

from millpond.errors import InvalidError
from millpond.kernels.watermark_strategies import Bounded, Custom, Inherited, Percentile, Slack, Strategy

Duration = datetime.timedelta | int | float | str

YEARS_MAX = 10_000
_UNITS = {"us": 1, "ms": 1000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}


def is_duration(text: str) -> bool:
    """Whether a text is a duration, such as "10s".

    >>> is_duration("10 s"), is_duration("gap * 2")
    (True, False)
    """
    number = text.strip().rstrip("usmhd").strip()
    return number.replace(".", "", 1).lstrip("-").isdigit()


def microseconds(duration: Duration) -> int:
    """A duration in microseconds: a timedelta, seconds, or text like "10s", "250ms", "1h".

    >>> microseconds("10s"), microseconds(0.5), microseconds(datetime.timedelta(minutes=1))
    (10000000, 500000, 60000000)
    """
    found = _microseconds(duration)
    if abs(found) > YEARS_MAX * 366 * 86_400_000_000:
        raise InvalidError(f"a duration is at most {YEARS_MAX:,} years", detail=f"got {duration!r}"[:200])
    return found


def _microseconds(duration: Duration) -> int:
    if isinstance(duration, datetime.timedelta):
        return duration // datetime.timedelta(microseconds=1)
    if isinstance(duration, str):
        text = duration.strip()
        for unit in ("us", "ms", "s", "m", "h", "d"):
            number = text[: -len(unit)].strip()
            if text.endswith(unit) and number.replace(".", "", 1).isdigit():
                return round(float(number) * _UNITS[unit])
        if text.startswith("-") and text[1:2] != "-" and is_duration(text):
            raise InvalidError(f"a duration cannot be negative: {duration!r}", hint='for example "10s"')
        raise InvalidError(f"not a duration: {duration!r}", hint='write "10s", "250ms", "5m", "1h" or "2d"')
    counts = isinstance(duration, int | float) and not isinstance(duration, bool)
    if not counts or not math.isfinite(duration):
        raise InvalidError(
            f"not a duration: {duration!r}",
            hint='write "10s", "250ms", "5m", "1h", "2d", seconds or a timedelta',
        )
    return round(duration * 10**6)


def strategy_of(delay: Duration | Strategy) -> Strategy:
    """A strategy, or the one that a duration stands for.

    >>> strategy_of("5s")
    Bounded(delay_us=5000000)
    """
    if isinstance(delay, Bounded | Slack | Percentile | Custom | Inherited):
        return delay
    return Bounded(microseconds(delay))
