"""`/health`, `/ready` and `/metrics`: what watches a server asks for."""

from __future__ import annotations

import asyncio

from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from millpond.errors import MillpondError, UnavailableError
from millpond.pond import Pond
from millpond.server.http.caller import client_of, serving_of
from millpond.server.http.http_errors import error_response
from millpond.server.http.response_formats import JSON
from millpond.server.metrics.collector import PondCollector
from millpond.server.metrics.exposition import PondRegistry
from millpond.sinks.json_rows import json_text
from millpond.version import __version__

READY_S_MAX = 5.0  # a pond that takes longer to answer is not ready


async def health(request: Request) -> Response:
    """The process answers."""
    return Response(json_text({"status": "ok", "version": __version__}) + "\n", 200, media_type=JSON)


async def ready(request: Request) -> Response:
    """The pond can be read; 503 with the reason otherwise."""
    pond = serving_of(request).pond
    try:
        async with asyncio.timeout(READY_S_MAX):
            answer = await asyncio.to_thread(_status, pond)
    except TimeoutError:
        return error_response(UnavailableError("the pond did not answer", detail=f"waited {READY_S_MAX:g} s"))
    except MillpondError as error:
        return error_response(UnavailableError(error.message, detail=error.detail, hint=error.hint))
    return Response(json_text(answer) + "\n", 200, media_type=JSON)


def _status(pond: Pond) -> dict[str, object]:
    status = pond.status
    if status.state == "failed" and status.last_error is not None:
        raise UnavailableError("the pipeline has failed", detail=str(status.last_error).partition("\n")[0])
    if status.epoch is not None:
        _ = pond.head()
    return {"status": "ready", "state": status.state, "epoch": status.epoch, "holder": status.holder}


async def metrics(request: Request) -> Response:
    """The metrics of the pond and the server, as Prometheus reads them."""
    await client_of(request)
    collector: PondCollector = request.app.state.collector
    encode, kind = choose_encoder(request.headers.get("accept", ""))
    body = await asyncio.to_thread(lambda: encode(PondRegistry(collector)))
    return Response(body, 200, {"Content-Type": kind})
