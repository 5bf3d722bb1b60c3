"""Adds the name of the source to errors of systems that are unavailable.

Law: an error of a connection, a file or a broker is shown as
"source 'orders' is unavailable: connection refused (broker1:9092)", in the driver and in every task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from millpond.errors import UnavailableError
from millpond.state.store.store import StoreError


class AwayError(UnavailableError):
    """An external system is unavailable; `reason` says why in a few words, with its address."""

    reason: str | None = None


def away(message: str, reason: str, *, hint: str | None = None) -> AwayError:
    error = AwayError(message, detail=reason, hint=hint)
    error.reason = error.detail  # in which secrets are masked
    return error


@contextlib.contextmanager
def named(source: str) -> Iterator[None]:
    """Add the name of the source to errors that are raised inside."""
    try:
        yield
    except StoreError:
        raise  # the pond's own storage
    except UnavailableError as error:
        if error.step == source:
            raise
        reason = getattr(error, "reason", None)
        raise UnavailableError(
            f"source {source!r} is unavailable: {reason or error.message}",
            detail=None if reason else error.detail,
            hint=error.hint,
            step=source,
        ) from error
    except OSError as error:
        raise UnavailableError(
            f"source {source!r} is unavailable: {reason_of(error)}",
            detail=f"{type(error).__name__}: {error}",
            hint="check that it can be reached from here; nothing that was committed is lost",
            step=source,
        ) from error


def reason_of(error: OSError) -> str:
    """
    >>> reason_of(ConnectionRefusedError(111, "Connection refused"))
    'connection refused'
    >>> reason_of(FileNotFoundError(2, "No such file or directory", "/in/a.csv"))
    'no such file or directory (/in/a.csv)'
    """
    said = error.strerror or str(error) or type(error).__name__
    said = said[:1].lower() + said[1:]
    return said if error.filename is None else f"{said} ({error.filename})"
