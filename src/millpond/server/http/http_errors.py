"""Errors as HTTP responses: one JSON shape, with the fields that the command line shows.

Law: the status says what the caller must do, as the kind of an error does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from millpond.cancellation import StatementCancelledError
from millpond.errors import ConflictError, InternalError, InvalidError, MillpondError, UnavailableError
from millpond.server.authentication import LoginError
from millpond.server.authorization import NotAllowedError
from millpond.server.connection_limits import TooManyConnectionsError
from millpond.sinks.json_rows import json_text

RETRY_S = 1  # what Retry-After says when it is not known better
log = logging.getLogger("millpond.server")


class NotFoundError(InvalidError):
    """There is no view, table or key of that name."""


class TooLargeError(InvalidError):
    """The body of a request is larger than the server allows."""


class NotAcceptableError(InvalidError):
    """The answer exists in none of the formats that the client accepts."""


class UnsupportedMediaTypeError(InvalidError):
    """The body has a format that the endpoint does not read."""


class BackpressureError(UnavailableError):
    """The pond takes no more rows now: retry after the time that it says."""

    retry_s = RETRY_S


class GoneError(InvalidError):
    """The epoch from which changes were asked for is no longer kept."""


STATUS: tuple[tuple[type[MillpondError], int], ...] = (  # the first that fits
    (LoginError, 401),
    (NotAllowedError, 403),
    (NotFoundError, 404),
    (NotAcceptableError, 406),
    (GoneError, 410),
    (TooLargeError, 413),
    (UnsupportedMediaTypeError, 415),
    (BackpressureError, 429),
    (TooManyConnectionsError, 429),
    (InvalidError, 400),
    (ConflictError, 409),
    (StatementCancelledError, 503),
    (UnavailableError, 503),
    (MillpondError, 500),
)


def status_of(error: MillpondError) -> int:
    """
    >>> status_of(NotFoundError("no view")), status_of(ConflictError("lost")), status_of(InternalError("bug"))
    (404, 409, 500)
    """
    return next(status for kind, status in STATUS if isinstance(error, kind))


def error_fields(error: MillpondError) -> dict[str, Any]:
    """The fields of an error, with its kind among the five and the place in the statement, from 1.

    >>> error_fields(NotFoundError("no view named 'x'"))["kind"]
    'InvalidError'
    """
    fields = error.fields()
    kinds = [k for k in type(error).__mro__ if k.__module__ == MillpondError.__module__]
    fields["kind"] = kinds[0].__name__
    fields["position"] = position_of(error)
    return fields


def position_of(error: MillpondError) -> int | None:
    """The place in the statement, in characters from 1, if it is known."""
    text, at = error.place or ("", None)
    return None if at is None else len(text.encode()[: at[0]].decode(errors="ignore")) + 1


def error_body(error: MillpondError) -> str:
    return json_text({"error": error_fields(error)})


def error_response(error: MillpondError, headers: Mapping[str, str] | None = None) -> Response:
    status = status_of(error)
    more = dict(headers or {})
    if status == 401:
        more["WWW-Authenticate"] = 'Basic realm="millpond", charset="UTF-8"'
    if status in (429, 503):
        more["Retry-After"] = str(getattr(error, "retry_s", RETRY_S))
    return Response(error_body(error) + "\n", status, more, "application/json")


async def on_error(request: Request, error: Exception) -> Response:
    """The response to any exception that leaves a handler."""
    return error_response(as_millpond_error(error))


def as_millpond_error(error: Exception) -> MillpondError:
    if isinstance(error, MillpondError):
        return error
    detail = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):
        return UnavailableError("an operation of the system failed", detail=detail)
    log.error("an unexpected error occurred in a request", exc_info=error)
    return InternalError("an unexpected error occurred", detail=detail, hint="it is a bug in millpond")
