"""Waiting for something that another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], timeout_s: float = 120.0) -> None:
    """Return once the condition is true; fail if that takes too long."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"still not true after {timeout_s:.0f} s"
        time.sleep(0.005)
