"""A source that is not there right now, told by its name and by why.

Law: what a source raises because something outside is away (a connection, a file, a broker) reaches people as
"source 'orders' is unavailable: connection refused (broker1:9092)", in the driver and in every task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from millpond.errors import UnavailableError
from millpond.state.store import StoreError


class AwayError(UnavailableError):
    """Something outside is away; `reason` says why in a few words, with its address."""

    reason: str | None = None


def away(message: str, reason: str, *, hint: str | None = None) -> AwayError:
    error = AwayError(message, detail=reason, hint=hint)
    error.reason = error.detail  # in which secrets are masked
    return error


@contextlib.contextmanager
def named(source: str) -> Iterator[None]:
    """Inside, what is unavailable is told with the name of the source."""
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
            hint="see that it can be reached from here; nothing that was committed is lost",
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
