"""Who sends a request, and its body.

Law: a body is never longer in memory than the limit, and a client that sends it too slowly is cut off.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from millpond.errors import InvalidError, UnavailableError
from millpond.server.authentication import LoginError
from millpond.server.client_session import ClientSession
from millpond.server.http.http_errors import TooLargeError, UnsupportedMediaTypeError
from millpond.server.http.response_formats import JSON
from millpond.server.http_credentials import named_in, user_of
from millpond.server.serving import Serving

LEFT = "the client closed the connection before the answer"
T = TypeVar("T")
BODY_S_MAX = 60.0  # to receive a body


def serving_of(request: Request) -> Serving:
    found: Serving = request.app.state.serving
    return found


async def client_of(request: Request) -> ClientSession:
    """The client that a request comes from; LoginError if it must log in and did not."""
    serving, address = serving_of(request), "" if request.client is None else request.client.host
    header = request.headers.get("authorization")
    try:
        user = await asyncio.to_thread(user_of, serving.authenticator, header)
    except LoginError as error:
        if header:
            serving.statements.audit.logged_in((named_in(header), "http", address), error)
        raise
    return serving.statements.client(user, "http", address)


async def answered(request: Request, client: ClientSession, work: Callable[[], T]) -> T:
    """Run work for a request in a thread of the pool; it is cancelled if the client leaves."""
    working = asyncio.ensure_future(client.in_thread(work))
    leaving = asyncio.ensure_future(_disconnected(request))
    try:
        done, _ = await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working not in done:
            client.cancel(LEFT)
        return await working
    finally:
        leaving.cancel()
        working.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def body_of(request: Request) -> bytes:
    """The body of a request, if it is not too large and comes in time."""
    limit = serving_of(request).settings.message_bytes_max
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise too_large(limit)
    try:
        async with asyncio.timeout(BODY_S_MAX):
            return await _received(request, limit)
    except TimeoutError:
        raise UnavailableError(
            "the body of the request did not arrive", detail=f"waited {BODY_S_MAX:g} s"
        ) from None
    except ClientDisconnect:
        raise UnavailableError("the client closed the connection within its request") from None


async def _received(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_large(limit)
        parts.append(part)
    return b"".join(parts)


def too_large(limit: int) -> TooLargeError:
    return TooLargeError(
        f"the body of the request is larger than {limit} bytes",
        hint="send fewer rows at a time, or raise message_bytes_max",
    )


def content_type(request: Request) -> str:
    """The media type of the body, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def require_json(request: Request) -> None:
    """Refuse any other body: a page of another site can send other types without asking."""
    if content_type(request) != JSON:
        raise unsupported(content_type(request), (JSON,))


def unsupported(media: str, known: Sequence[str]) -> UnsupportedMediaTypeError:
    return UnsupportedMediaTypeError(
        "the body has no format that is read here",
        detail=f"Content-Type is {media[:100]!r}" if media else "there is no Content-Type",
        hint=f"send Content-Type: {' or '.join(known)}",
    )


def parsed_json(raw: bytes) -> Any:
    """The value of a JSON text; numbers that JSON does not have are refused."""
    try:
        return json.loads(raw, parse_constant=_no_constant)
    except RecursionError:
        raise InvalidError("the JSON of the request is nested too deeply") from None
    except ValueError as error:
        raise InvalidError("the body of the request is not JSON", detail=str(error)[:200]) from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def whole_number(request: Request, name: str, default: int | None, least: int = 0) -> int | None:
    """A parameter of the query string that is a whole number."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not text.isascii() or int(text) < least:
        raise InvalidError(f"{name} must be a whole number from {least}", detail=f"got {text[:50]!r}")
    return int(text)
