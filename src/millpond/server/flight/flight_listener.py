"""Listens for Arrow Flight SQL; gRPC has threads of its own, statements run in the pool of the server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from millpond.server.flight.flight_server import FlightSqlServer
from millpond.server.serving import Serving


class FlightListener:
    def __init__(self, serving: Serving, port: int) -> None:
        self._serving = serving
        self._port = port
        self._server: FlightSqlServer | None = None

    async def start(self) -> str:
        settings = self._serving.settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        scheme, tls = "grpc", {}
        if settings.tls_cert is not None and settings.tls_key is not None:
            scheme, tls = "grpc+tls", _certificates(settings.tls_cert, settings.tls_key)
        loop = asyncio.get_running_loop()
        location = f"{scheme}://{host}:{self._port}"
        self._server = await asyncio.to_thread(FlightSqlServer, self._serving, location, loop, **tls)
        return f"{scheme}://{host}:{self._server.port}"

    async def stop(self) -> None:
        if self._server is not None:
            await asyncio.to_thread(self._server.shutdown)


def _certificates(cert: Any, key: Any) -> dict[str, Any]:
    return {"tls_certificates": [(Path(cert).read_bytes(), Path(key).read_bytes())]}
