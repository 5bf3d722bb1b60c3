"""Errors as the statuses of Flight; the text has the message, the detail and the hint of the error."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from millpond.cancellation import StatementCancelledError
from millpond.errors import InvalidError, MillpondError, UnavailableError
from millpond.server.authentication import LoginError
from millpond.server.authorization import NotAllowedError

log = logging.getLogger("millpond.server")


class InvalidCallError(pa.ArrowInvalid):  # type: ignore[misc]
    """INVALID_ARGUMENT, for which Flight has no error of its own.

    Arrow adds the formatted stack of any other exception to what it sends.  Clients must not see the stack,
    so formatting it fails here, and Arrow adds only the name of this class.
    """

    @property
    def __cause__(self) -> BaseException | None:
        raise ValueError("the stack is not for clients")


@contextlib.contextmanager
def as_flight_errors() -> Iterator[None]:
    """Turn every exception of a block into one that Flight sends to the client."""
    try:
        yield
    except (flight.FlightError, pa.ArrowException):
        raise
    except Exception as error:
        raise flight_error(error) from None


def flight_error(error: Exception) -> Any:
    """
    >>> flight_error(InvalidError("no view named 'x'", hint="did you mean 'y'?"))
    InvalidCallError("no view named 'x'\\n  hint: did you mean 'y'?")
    """
    text = str(error)
    if isinstance(error, LoginError):
        return flight.FlightUnauthenticatedError(text)
    if isinstance(error, NotAllowedError):
        return flight.FlightUnauthorizedError(text)
    if isinstance(error, StatementCancelledError):
        return flight.FlightCancelledError(text)
    if isinstance(error, InvalidError):
        return InvalidCallError(text)
    if isinstance(error, UnavailableError | OSError):
        return flight.FlightUnavailableError(text)
    if not isinstance(error, MillpondError):
        log.error("an unexpected error occurred in a Flight call", exc_info=error)
        text = f"an unexpected error occurred\n  detail: {type(error).__name__}: {text}"
    return flight.FlightInternalError(text)
