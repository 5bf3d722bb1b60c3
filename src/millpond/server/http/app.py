"""The Starlette app of a server: the endpoints, what other parts of the server mount, and the guards."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from millpond.errors import InvalidError, MillpondError
from millpond.server.epoch_watch import EpochWatch
from millpond.server.http.endpoints import ENDPOINTS
from millpond.server.http.guards import OriginGuard
from millpond.server.http.http_errors import NotFoundError, error_response, on_error
from millpond.server.http.openapi import PATH, openapi
from millpond.server.http.table_endpoint import InboxGauge
from millpond.server.metrics.collector import PondCollector
from millpond.server.serving import Serving

# Further routes: "module:function", where function(serving) returns routes.  They come after the endpoints.
MOUNTS: tuple[str, ...] = ("millpond.server.dashboard.routes:dashboard_routes",)
MakeRoutes = Callable[[Serving], Sequence[BaseRoute]]


def make_app(serving: Serving) -> Starlette:
    """An app over one pond; `app.state` has what handlers share."""
    app = Starlette(
        routes=[*routes(), *mounted(serving)],
        middleware=[Middleware(OriginGuard, loopback_only=not serving.authenticator.needs_password)],
        exception_handlers={
            MillpondError: on_error,
            HTTPException: _on_http_exception,
            Exception: on_error,
        },
    )
    app.state.serving = serving
    app.state.epoch_watch = EpochWatch(serving.pond)
    app.state.inbox_gauge = InboxGauge()
    app.state.collector = PondCollector(serving.pond, serving.statements.activity)
    return app


def routes() -> list[BaseRoute]:
    """The routes of the API."""
    return [
        Route(PATH, openapi, methods=["GET"]),
        *(Route(e.route_path, e.handler, methods=[e.method], name=e.handler.__name__) for e in ENDPOINTS),
    ]


def mounted(serving: Serving) -> list[BaseRoute]:
    found: list[BaseRoute] = []
    for place in MOUNTS:
        module, _, name = place.partition(":")
        make: MakeRoutes = getattr(importlib.import_module(module), name)
        found += make(serving)
    return found


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the same shape as other errors."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_response(
            NotFoundError(f"no such path: {request.url.path[:200]}", hint=f"{PATH} describes all")
        )
    found = error_response(InvalidError(f"{error.detail.lower()}: {request.method} {request.url.path[:200]}"))
    found.status_code = error.status_code
    found.headers.update(error.headers or {})
    return found
