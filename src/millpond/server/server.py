"""A server: the listeners of one pond, on one event loop in a thread.

Law: stopping ends statements that run with an error that says why; a change is written whole or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from millpond.errors import InvalidError, UnavailableError
from millpond.pond import Pond
from millpond.server.authentication import Authenticator
from millpond.server.authorization import Authorizer
from millpond.server.listener import Listener
from millpond.server.listener_table import LISTENERS, wanted_listeners
from millpond.server.make_serving import make_serving
from millpond.server.settings import ServeSettings, serve_settings
from millpond.server.thread_switching import quick_switching

T = TypeVar("T")


class Server:
    """Serves a pond that is open; the pond stays open when it stops."""

    def __init__(
        self,
        pond: Pond,
        settings: ServeSettings,
        *,
        authenticator: Authenticator | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.settings = settings
        self.urls: dict[str, str] = {}  # of each listener, once it has started
        if settings.processes and (authenticator is not None or authorizer is not None):
            raise InvalidError(
                "users and rules of your own cannot be checked by other processes", hint="leave out processes"
            )
        self.serving = make_serving(pond, settings, authenticator=authenticator, authorizer=authorizer)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="millpond-server", daemon=True)
        self._listeners: list[Listener] = []
        self._stopped = False

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> dict[str, str]:
        """Begin to listen; returns the URL of each listener."""
        wanted = wanted_listeners(self.settings)
        if not wanted:
            raise InvalidError("nothing is to be served", hint=f"give one of {_ports()}")
        self._thread.start()
        traces = self.serving.statements.traces
        if traces is not None:
            self.serving.pond.on_epoch(traces.committed)
        try:
            for name, entry, port in wanted:
                listener = entry.make(self.serving, port)
                try:
                    self.urls[name] = self._on_loop(listener.start())
                except OSError as error:
                    raise UnavailableError(
                        f"port {port} of {self.settings.host} cannot be listened on",
                        detail=f"{type(error).__name__}: {error}",
                        hint="choose another port; 0 picks a free one",
                    ) from error
                self._listeners.append(listener)
        except BaseException:
            self.stop()
            raise
        return self.urls

    def stop(self) -> None:
        """Stop listening, end all statements with an error, and close all connections."""
        if self._stopped:
            return
        self._stopped = True
        statements = self.serving.statements
        if not self._thread.is_alive():
            statements.stop()
            return
        ending = threading.Thread(target=statements.stop)  # statements report their end on the loop
        ending.start()
        for listener in reversed(self._listeners):
            self._on_loop(listener.stop())
        ending.join()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            with quick_switching():
                self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def start_server(pond: Pond, settings: Mapping[str, Any]) -> Server:
    """Serve a pond; `settings` are the fields of `ServeSettings`."""
    server = Server(pond, serve_settings(**settings))
    server.start()
    return server


def _ports() -> str:
    return ", ".join(entry.port for entry in LISTENERS.values())
