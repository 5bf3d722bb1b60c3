"""Strategies for watermarks: how long a stream waits for rows that come late.

>>> from millpond.watermarks import announced, bounded, custom, inherited, monotonous, percentile, slack
>>> bounded("5s"), slack(rows=1000), percentile(0.99)
(Bounded(delay_us=5000000), Slack(rows=1000), Percentile(share=0.99, window_us=3600000000))

Pass one to `Stream.watermark`, or as `delay=` to `Pond.stream`.
A duration alone means `bounded`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.arguments.durations import Duration, microseconds
from millpond.errors import InvalidError
from millpond.kernels.watermark_strategies import (
    SLACK_ROWS_MAX,
    Bounded,
    Custom,
    Inherited,
    NewestOf,
    Percentile,
    Slack,
    Strategy,
)

__all__ = ["Strategy", "announced", "bounded", "custom", "inherited", "monotonous", "percentile", "slack"]


def bounded(delay: Duration) -> Strategy:
    """No row comes more than `delay` behind the newest one of its partition.

    >>> bounded("250ms")
    Bounded(delay_us=250000)
    """
    return Bounded(microseconds(delay))


def monotonous() -> Strategy:
    """The rows of a partition come in the order of their times.

    >>> monotonous()
    Bounded(delay_us=0)
    """
    return Bounded(0)


def slack(rows: int = 1000) -> Strategy:
    """At most `rows` newer rows of its partition overtake a row.

    >>> slack(rows=3)
    Slack(rows=3)
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or not 0 <= rows <= SLACK_ROWS_MAX:
        raise InvalidError(
            f"slack needs a number of rows from 0 to {SLACK_ROWS_MAX}",
            detail=f"got {rows!r}",
            hint="slack(rows=1000)",
        )
    return Slack(rows)


def percentile(share: float, window: Duration = "1h") -> Strategy:
    """Wait as long as this share of the rows needed, in the last one or two `window`s of event time.

    >>> percentile(0.95, window="10m")
    Percentile(share=0.95, window_us=600000000)
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise InvalidError(
            "a percentile is a share above 0 and up to 1", detail=f"got {share!r}", hint="percentile(0.99)"
        )
    window_us = microseconds(window)
    if window_us <= 0:
        raise InvalidError("the window of a percentile must be positive", detail=f"got {window!r}")
    return Percentile(float(share), window_us)


def custom(function: Callable[[Any, Any], tuple[Any, Any]]) -> Strategy:
    """A function `(batch, state) -> (bound, state)`, called once an epoch for each partition with rows.

    `batch` is an Arrow table with the rows of the partition that were on time, in order.
    `state` is what the function returned last, None at first; it must be JSON.
    `bound` is the time before which no row of the partition will come, or None.
    The function must be pure: the same rows and state give the same result.

    >>> def as_announced(batch, state):
    ...     return batch["complete_until"].to_pylist()[-1], None
    >>> type(custom(as_announced)).__name__
    'Custom'
    """
    if not callable(function):
        raise InvalidError("a custom watermark needs a function", detail=f"got {function!r}"[:200])
    return Custom(function)


def announced(column: str) -> Strategy:
    """Rows say in a column before which time no other row of their partition will come.

    >>> announced("complete_until")
    Custom(function=NewestOf(column='complete_until'))
    """
    if not isinstance(column, str):
        raise InvalidError("a watermark is announced in a column", detail=f"got {column!r}"[:200])
    return Custom(NewestOf(column))


def inherited() -> Strategy:
    """The watermark of the rows before, for steps such as `process` that make other rows of them.

    A row whose time is behind that watermark is late.

    >>> inherited()
    Inherited()
    """
    return Inherited()
