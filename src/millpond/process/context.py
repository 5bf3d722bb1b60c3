"""The context of user code: the current key, the clocks, timers and side outputs."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from millpond.kernels.python_rows import Row, python_rows
from millpond.process.handle import Times
from millpond.process.spec import Clock
from millpond.process.timers import CLOCKS, NEVER, Timers

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_US = datetime.timedelta(microseconds=1)

_FIRST_US = (datetime.datetime.min - _EPOCH) // _US
_LAST_US = (datetime.datetime.max - _EPOCH) // _US

Instant = datetime.datetime | int


class Timer(NamedTuple):
    """A timer that fires: its name, the time it was set for, and its clock."""

    name: str
    at: datetime.datetime
    clock: Clock


class ProcessContext:
    """Passed to `on_row`, `on_timer` and `on_control` as `ctx`."""

    __slots__ = (
        "_aware",
        "_emit",
        "_key_columns",
        "_keys",
        "_now_us",
        "_timers",
        "_times",
        "at",
        "epoch",
        "fired",
        "place",
        "removed",
        "row_times",
    )

    def __init__(
        self,
        *,
        epoch: int,
        now_us: int,
        times: Times,
        aware: bool,
        key_columns: pa.Table,
        timers: Timers | None,
        emit: Callable[[str, Any], None],
    ) -> None:
        self.epoch = epoch
        self.at = 0  # the number of the current key
        self.place = -1  # the number of the current row, -1 where there is none
        self.fired = 0  # how many timers have fired
        self.removed = False  # did user code retract this key's row?
        self.row_times: Any = None
        self._now_us = now_us
        self._times = times
        self._aware = aware
        self._key_columns = key_columns
        self._keys: list[Row] | None = None
        self._timers = timers
        self._emit = emit

    @property
    def key(self) -> Row:
        """The key as a row."""
        if self._keys is None:
            self._keys = python_rows(self._key_columns)
        return self._keys[self.at]

    @property
    def now(self) -> datetime.datetime:
        """The time of this epoch in UTC; the same for all its rows."""
        return _EPOCH_UTC + self._now_us * _US

    @property
    def time(self) -> datetime.datetime | None:
        """The event time of the row, or the time of the timer; None where the stream has no event time."""
        if self.row_times is None:
            return None
        return self.instant(self.row_times[self.place] if self.place >= 0 else self._times.event)

    @property
    def watermark(self) -> datetime.datetime | None:
        """The event time up to which no more rows are expected, at this point of the key's rows."""
        return None if self._times.event == NEVER else self.instant(self._times.event)

    def emit(self, side: str, row: Any) -> None:
        """Send a row to a side output."""
        self._emit(side, row)

    def remove(self) -> None:
        """Retract this key's row, in a step with `latest=True`."""
        self.removed = True
        self._emit("", None)

    # -- timers ------------------------------------------------------------------

    def set_timer(
        self,
        name: str = "",
        at: Instant | None = None,
        *,
        after: datetime.timedelta | float | None = None,
        clock: Clock = "event",
    ) -> None:
        """Set or replace a timer of this key: `at` a time, or `after` the time of the row (or now)."""
        if (at is None) == (after is None):
            raise TypeError("set_timer takes either at= or after=")
        if at is None:
            assert after is not None
            distance = after if isinstance(after, datetime.timedelta) else datetime.timedelta(seconds=after)
            us = self._here(clock) + distance // _US
        else:
            us = self.micros(at)
        if clock == "processing":
            us = -(-us // 1000) * 1000
        if not _FIRST_US <= us <= _LAST_US:
            raise ValueError("a timer is set for a time in the years 1 to 9999")
        self._set(clock).set(clock, name, us)

    def delete_timer(self, name: str = "", *, clock: Clock = "event") -> None:
        self._set(clock).delete(clock, name)

    def timer(self, name: str = "", *, clock: Clock = "event") -> datetime.datetime | None:
        """The time for which a timer of this key is set, or None."""
        us = self._set(clock).get(clock, name)
        return None if us is None else self.moment(clock, us)

    def _set(self, clock: str) -> Timers:
        if clock not in CLOCKS:
            raise ValueError(f"no clock {clock!r}; clocks are event and processing")
        if self._timers is None:
            raise TypeError("timers need an on_timer method: write the step as a class")
        if clock == "event" and self.row_times is None:
            raise TypeError("event-time timers need event time: pass event_time= to pond.stream()")
        return self._timers

    def _here(self, clock: str) -> int:
        if clock == "processing":
            return self._now_us
        if self.row_times is None:
            self._set(clock)
        return int(self.row_times[self.place]) if self.place >= 0 else self._times.event

    # -- times -----------------------------------------------------------------------

    def moment(self, clock: str, us: int) -> datetime.datetime:
        return self.instant(us) if clock == "event" else _EPOCH_UTC + us * _US

    def instant(self, us: int) -> datetime.datetime:
        """Event time in the form of the stream: with a time zone if the column has one."""
        return (_EPOCH_UTC if self._aware else _EPOCH) + int(us) * _US

    def micros(self, at: Instant) -> int:
        if isinstance(at, datetime.datetime):
            return (at - (_EPOCH if at.tzinfo is None else _EPOCH_UTC)) // _US
        if isinstance(at, int) and not isinstance(at, bool):
            return at
        raise TypeError(f"a time is a datetime or whole microseconds, not {type(at).__name__}")
