"""The files of the page: read once, sent with headers that forbid every request to another site.

Law: the page loads nothing from elsewhere, so it works offline and tells nobody that it is used.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from millpond.server.http.http_errors import NotFoundError

BYTES_MAX = 200_000  # of all files together
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # with the ETag: asked for again, sent only if changed
}
PAGE = "index.html"


@dataclass(frozen=True)
class Asset:
    body: bytes
    media_type: str
    etag: str


@cache
def assets() -> dict[str, Asset]:
    """All files of the page, by name."""
    found = {}
    for file in (resources.files("millpond.server.dashboard") / "assets").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind in MEDIA_TYPES:
            body = file.read_bytes()
            found[file.name] = Asset(body, MEDIA_TYPES[kind], f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    return found


def asset_response(request: Request, name: str) -> Response:
    """One file, or 304 if the browser has it."""
    found = assets().get(name)
    if found is None:
        raise NotFoundError(f"the dashboard has no file {name[:100]!r}")
    headers = {**HEADERS, "ETag": found.etag}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, 200, headers, found.media_type)
