"""Logs a repeated warning once, and then at most every 30 seconds.

A source that is unavailable fails many times a minute with the same text.
Law: every new text is logged immediately.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

EVERY_S = 30.0


class RepeatedWarnings:
    """
    >>> now = iter([0.0, 1.0, 31.0, 31.5])
    >>> warnings = RepeatedWarnings(logging.getLogger("doctest"), monotonic=lambda: next(now))
    >>> [warnings.warn(text, failures=n) for n, text in enumerate(["away", "away", "away", "gone"], 1)]
    [True, False, True, True]
    """

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._last: tuple[str, float] | None = None  # the text, and when it was logged

    def warn(self, text: str, failures: int) -> bool:
        """Log the text of the n-th consecutive failure, unless it was logged less than 30 s ago."""
        now = self._monotonic()
        last = self._last if failures > 1 else None
        if last is not None and last[0] == text and now - last[1] < EVERY_S:
            return False
        self._last = text, now
        self._log.warning("%s; trying again (failure %d)", text, failures)
        return True
