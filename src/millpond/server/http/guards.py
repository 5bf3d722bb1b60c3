"""What every request passes before it reaches a handler.

Law: a page of another site cannot use the browser of a person on this machine to talk to the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from millpond.server.authorization import NotAllowedError
from millpond.server.http.http_errors import error_response
from millpond.server.settings import is_loopback


class OriginGuard:
    """Refuses requests that another site sent through a browser."""

    def __init__(self, app: ASGIApp, *, loopback_only: bool) -> None:
        self.app = app
        self.loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            reason = foreign(Headers(scope=scope), self.loopback_only)
            if reason is not None:
                await error_response(NotAllowedError(reason))(scope, receive, send)
                return
        await self.app(scope, receive, send)


def foreign(headers: Mapping[str, str], loopback_only: bool) -> str | None:
    """Why a request comes from another site; None if it does not.

    >>> foreign({"host": "127.0.0.1:80", "origin": "http://evil.example"}, True)
    "the origin 'http://evil.example' is another site"
    >>> foreign({"host": "evil.example"}, True)
    "'evil.example' is not the name of this machine"
    >>> foreign({"host": "localhost:80", "origin": "http://localhost:80"}, True)
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    name = urlsplit(f"//{host}").hostname or ""
    if loopback_only and host and not is_loopback(name):
        return f"{name[:100]!r} is not the name of this machine"
    if origin is not None and urlsplit(origin).netloc != host:
        return f"the origin {origin[:100]!r} is another site"
    return None
