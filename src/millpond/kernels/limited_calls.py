"""Calls of a user's functions whose failure stops the epoch: of watermarks, triggers and merged windows.

Law: the error names what was called and the user's own line, and no call runs for ever (law 9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from millpond.errors import InvalidError
from millpond.kernels.user_code import TooLong, error_text, is_row_fault
from millpond.kernels.watchdog import limited

T = TypeVar("T")

CALL_SECONDS_MAX = 60.0  # of one call of a user's function


class Calls:
    """Calls functions and counts the calls."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.calls = 0

    def __call__(self, function: Callable[..., T], *arguments: object) -> T:
        self.calls += 1
        try:
            return function(*arguments)
        except BaseException as error:
            if not is_row_fault(error):
                raise
            raise InvalidError(f"{self.what} failed", detail=error_text(error, function)) from error


@contextmanager
def limited_calls(what: str) -> Iterator[Calls]:
    """
    >>> with limited_calls("a sum") as call:
    ...     call(sum, [1, 2])
    3
    """
    calls = Calls(what)
    try:
        with limited(calls, int(CALL_SECONDS_MAX * 1_000_000), what):
            yield calls
    except TooLong:
        raise InvalidError(
            f"{what} has not returned within {CALL_SECONDS_MAX:g} s",
            hint="look for a loop that does not end, and wait for nothing",
        ) from None
