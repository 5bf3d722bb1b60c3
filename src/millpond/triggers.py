"""Triggers: when `window()` emits the contents of a window.

>>> from millpond.triggers import after_watermark, every, after_count
>>> trigger = after_watermark(early=every("5s"), late=after_count(1))

Triggers compose.  Each firing is a pane of its window.  All rows of an epoch are counted before a window is
asked, so a pane of `after_count(2)` can have more than two rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.arguments.call_errors import need_callable, need_number
from millpond.arguments.durations import Duration, microseconds
from millpond.errors import InvalidError
from millpond.kernels.custom_trigger import CustomTrigger, TriggerEvent
from millpond.kernels.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterDelay,
    AfterEach,
    AfterWatermark,
    Always,
    AtShare,
    Never,
    Repeatedly,
    Trigger,
)

__all__ = [
    "Trigger",
    "TriggerEvent",
    "after_all",
    "after_any",
    "after_count",
    "after_delay",
    "after_each",
    "after_watermark",
    "always",
    "at_percentile",
    "custom",
    "every",
    "never",
    "repeatedly",
]


def after_watermark(early: Trigger | None = None, late: Trigger | None = None) -> Trigger:
    """Fire when the watermark passes the end of the window: the on-time pane.

    `early` fires repeatedly before that, `late` repeatedly after it.  Without `late` the on-time pane is
    the last.

    >>> after_watermark(early=after_count(100))
    AfterWatermark(early=AfterCount(n=100), late=None)
    """
    for part in (early, late):
        if part is not None:
            _need_trigger(part)
    return AfterWatermark(early, late)


def after_count(n: int) -> Trigger:
    """Fire when the window has received `n` rows, once.

    >>> after_count(100)
    AfterCount(n=100)
    """
    need_number("the number of rows", n, 1)
    return AfterCount(n)


def every(period: Duration) -> Trigger:
    """Fire at every multiple of a period of processing time at which the window has new rows.

    >>> every("5s")
    Repeatedly(part=AfterDelay(us=5000000, aligned=True))
    """
    return Repeatedly(AfterDelay(_positive("the period", period), aligned=True))


def after_delay(delay: Duration) -> Trigger:
    """Fire a time after the first row, by the clock, once.

    >>> after_delay("1m")
    AfterDelay(us=60000000, aligned=False)
    """
    return AfterDelay(_positive("the delay", delay))


def at_percentile(share: float) -> Trigger:
    """Fire when this share of the window's rows is expected to have arrived, once.

    The distribution of delays is learnt from the stream.

    >>> at_percentile(0.99)
    AtShare(share=0.99)
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise InvalidError(
            "the share of rows must be between 0 and 1", detail=f"got {share!r}", hint="for example 0.99"
        )
    return AtShare(float(share))


def repeatedly(trigger: Trigger) -> Trigger:
    """Fire whenever a trigger does, again and again.

    >>> repeatedly(after_count(10))
    Repeatedly(part=AfterCount(n=10))
    """
    _need_trigger(trigger)
    return trigger if isinstance(trigger, Repeatedly) else Repeatedly(trigger)


def after_any(*triggers: Trigger) -> Trigger:
    """Fire when one of the triggers does.

    >>> after_any(after_count(10), after_delay("1m")).may_fire
    True
    """
    return AfterAny(_need_triggers("after_any", triggers))


def after_all(*triggers: Trigger) -> Trigger:
    """Fire when all of the triggers would.

    >>> after_all(after_count(10), after_delay("1m")).may_fire
    True
    """
    return AfterAll(_need_triggers("after_all", triggers))


def after_each(*triggers: Trigger) -> Trigger:
    """Fire as the first trigger does, until it has finished, then as the second does, and so on.

    >>> after_each(after_count(10), after_delay("1m")).may_fire
    True
    """
    return AfterEach(_need_triggers("after_each", triggers))


def custom(
    on_rows: Callable[[int, TriggerEvent], int],
    fires: Callable[[int, TriggerEvent], bool],
    *,
    start: int = 0,
    once: bool = False,
    at_end: bool = False,
) -> Trigger:
    """Fire by your own pure functions over one whole number of state for each window.

    `on_rows(state, event)` returns the state after new rows, `fires(state, event)` says whether the window
    fires; the state then starts again.  `event` has rows, window_start, window_end, watermark and now.  With
    `once` the first firing is the last.  A window is asked when it gets rows, and with `at_end` also when the
    watermark passes its end.  Combine it with other triggers to fire at other times.

    >>> doubling = custom(lambda n, event: n + event.rows, lambda n, event: n >= 100)
    >>> repeatedly(after_any(doubling, every("1m"))).may_fire
    True
    """
    for function in (on_rows, fires):
        need_callable("a function of a trigger", function)
    need_number("the start", start, 0)
    return CustomTrigger(on_rows, fires, start, once, at_end)


def always() -> Trigger:
    """Fire in every epoch that brings rows of the window.

    >>> always()
    Always()
    """
    return Always()


def never() -> Trigger:
    """Do not fire: the window is emitted once, when it expires.

    >>> never()
    Never()
    """
    return Never()


def _need_triggers(what: str, triggers: tuple[Any, ...]) -> tuple[Trigger, ...]:
    if not triggers:
        raise InvalidError(f"{what} needs at least one trigger", hint=f"{what}(after_count(10), every('5s'))")
    for trigger in triggers:
        _need_trigger(trigger)
    return triggers


def _need_trigger(trigger: Any) -> None:
    if not isinstance(trigger, Trigger):
        raise InvalidError(
            f"{trigger!r} is no trigger"[:200], hint="call one of millpond.triggers, such as after_count(10)"
        )


def _positive(what: str, duration: Duration) -> int:
    us = microseconds(duration)
    if us < 1:
        raise InvalidError(f"{what} of a trigger must be positive", detail=f"got {duration!r}")
    return us
