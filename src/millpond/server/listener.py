"""What a protocol must offer to be served."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Accepts the connections of one protocol, on the event loop of the server."""

    async def start(self) -> str:
        """Begin to listen; returns the URL that clients connect to."""

    async def stop(self) -> None:
        """Close all connections: a statement that runs ends with an error that says why."""
