"""The clock, passed in.  An epoch has one recorded time; tests and replays set their own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    def now_us(self) -> int: ...


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000


@dataclass
class ManualClock:
    """A clock that advances only when it is set.

    >>> clock = ManualClock(5)
    >>> clock.advance(2)
    >>> clock.now_us()
    7
    """

    at_us: int = 0

    def now_us(self) -> int:
        return self.at_us

    def advance(self, us: int) -> None:
        self.at_us += us
