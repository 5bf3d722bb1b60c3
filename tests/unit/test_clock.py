"""Clocks: one that runs, one that stands."""

from __future__ import annotations

import time

from millpond.clock import ManualClock, SystemClock


def test_the_system_clock_is_in_microseconds() -> None:
    before = time.time() * 1e6
    now = SystemClock().now_us()
    after = time.time() * 1e6
    assert before - 1000 <= now <= after + 1000
    assert isinstance(now, int)


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(100)
    assert [clock.now_us(), clock.now_us()] == [100, 100]
    clock.advance(50)
    assert clock.now_us() == 150
