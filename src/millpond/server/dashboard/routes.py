"""The routes of the dashboard, which the HTTP server mounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from millpond.server.dashboard.dashboard_actions import act
from millpond.server.dashboard.dashboard_assets import PAGE, asset_response
from millpond.server.dashboard.pond_info import pond_info
from millpond.server.epoch_watch import EpochWatch
from millpond.server.http.caller import body_of, client_of, parsed_json, require_json
from millpond.server.serving import Serving

EVENT_S_MIN = 0.2  # between two events: a page needs no more
SILENCE_S_MAX = 10.0  # then a comment is sent, so that a connection that is gone is noticed


def dashboard_routes(serving: Serving) -> list[BaseRoute]:
    """The page, its files, its events and its actions."""
    return [
        Route("/", page, methods=["GET"]),
        Route("/dashboard/info", info, methods=["GET"]),
        Route("/dashboard/events", events, methods=["GET"]),
        Route("/dashboard/actions/{name}", action, methods=["POST"]),
        Route("/dashboard/{name}", asset, methods=["GET"]),
    ]


async def page(request: Request) -> Response:
    await client_of(request)  # asks for a password where one is needed
    return asset_response(request, PAGE)


async def asset(request: Request) -> Response:
    return asset_response(request, request.path_params["name"])


async def info(request: Request) -> Response:
    client = await client_of(request)
    return JSONResponse(
        await client.in_thread(lambda: pond_info(client)), headers={"Cache-Control": "no-store"}
    )


async def action(request: Request) -> Response:
    client = await client_of(request)
    require_json(request)
    fields = parsed_json(await body_of(request))
    name = request.path_params["name"]
    return JSONResponse({"done": await client.in_thread(lambda: act(client, name, fields))})


async def events(request: Request) -> Response:
    """Tell the page the number of each new epoch, as server-sent events."""
    await client_of(request)
    watch: EpochWatch = request.app.state.epoch_watch
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_epochs(request, watch), 200, headers, "text/event-stream")


async def _epochs(request: Request, watch: EpochWatch) -> AsyncIterator[str]:
    shown = -1
    yield "retry: 1000\n\n"
    while not watch.stopped and not await request.is_disconnected():
        newest = await watch.after(shown, SILENCE_S_MAX)
        yield f"event: epoch\nid: {newest}\ndata: {newest}\n\n" if newest > shown else ": still here\n\n"
        shown = max(shown, newest)
        await asyncio.sleep(EVENT_S_MIN)
