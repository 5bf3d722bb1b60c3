"""What the dashboard shows beside the relations of SQL: the pond, its runner, the user and what it may do."""

from __future__ import annotations

import os
import socket
from typing import Any

from millpond.server.client_session import ClientSession
from millpond.server.dashboard.dashboard_actions import allowed
from millpond.version import __version__

HERE = f"process {os.getpid()} on {socket.gethostname()}"  # as the holder of a lease is described


def pond_info(client: ClientSession) -> dict[str, Any]:
    """The state of the pond as this process knows it."""
    pond = client.pool.pond
    status = pond.status
    head = None if status.epoch is None else pond.head()
    return {
        "pond": pond.store.uri,
        "version": __version__,
        "user": client.user.name,
        "may": allowed(client),
        "state": status.state,
        "holder": status.holder,
        "elsewhere": status.holder is not None and not status.holder.startswith(f"{HERE},"),
        "error": None if status.last_error is None else str(status.last_error).partition("\n")[0],
        "epoch": status.epoch,
        "floor": None if head is None else head.floor,
        "parallelism": None if head is None else head.parallelism,
        "backlog": status.lag,
        "now_ms": pond.session.host.clock.now_us() / 1000,
    }
