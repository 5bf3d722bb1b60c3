"""The protocols that a server knows.

A protocol is one line in `LISTENERS`.  Its module is imported only when it is served, because each needs
packages of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from millpond.errors import InvalidError
from millpond.server.listener import Listener
from millpond.server.serving import Serving
from millpond.server.settings import ServeSettings


@dataclass(frozen=True)
class ListenerEntry:
    """A protocol: the setting with its port, and `module:function`, which makes a listener for a port."""

    port: str
    made_by: str
    extra: str | None = None  # the optional dependencies that it needs

    def make(self, serving: Serving, port: int) -> Listener:
        module, _, name = self.made_by.partition(":")
        try:
            make: Callable[[Serving, int], Listener] = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise InvalidError(
                f"serving this protocol needs the package {error.name}",
                hint=None if self.extra is None else f"pip install 'millpond[{self.extra}]'",
            ) from error
        return make(serving, port)


LISTENERS: dict[str, ListenerEntry] = {
    "http": ListenerEntry("http_port", "millpond.server.http.http_listener:HttpListener", "serve"),
    "flight": ListenerEntry("flight_port", "millpond.server.flight.flight_listener:FlightListener", "serve"),
    "pg": ListenerEntry("pg_port", "millpond.server.pgwire.pg_listener:PgListener"),
}

PROCESSES = ListenerEntry("pg_port", "millpond.server.processes.process_listener:ProcessListener")


def wanted_listeners(settings: ServeSettings) -> list[tuple[str, ListenerEntry, int]]:
    """The protocols that are served: the name, the entry and the port of each."""
    entries = {**LISTENERS, "pg": PROCESSES} if settings.processes else LISTENERS
    found = [(name, entry, getattr(settings, entry.port)) for name, entry in entries.items()]
    return [(name, entry, port) for name, entry, port in found if port is not None]
