"""Starts the pipeline when a statement needs an epoch and no process runs the pond.

Law: a server never takes a pond from the process that runs it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Protocol

from millpond.errors import ConflictError
from millpond.pond import Pond
from millpond.pond.other_processes import is_run_elsewhere

ASK_AGAIN_S = 1.0  # after another process was found to run the pond


class Pipeline(Protocol):
    """Runs the epochs of the pond that is served."""

    def ensure(self) -> None:
        """Return when some process runs the pond; called in threads of statements."""

    def stop(self) -> None:
        """Stop what was started for this server."""


class PipelineStarter:
    def __init__(self, pond: Pond) -> None:
        self._pond = pond
        self._lock = threading.Lock()
        self._elsewhere_until = 0.0
        self._started = False

    def ensure(self) -> None:
        """Return when this process or another one runs the pond; a pond without epochs is left alone."""
        if time.monotonic() < self._elsewhere_until or self._pond.runs_in_background:
            return
        with self._lock:
            if self._pond.runs_in_background:
                return
            status = self._pond.status
            if status.epoch is None:
                return
            if is_run_elsewhere(self._pond):
                self._elsewhere_until = time.monotonic() + ASK_AGAIN_S
                return
            if isinstance(status.last_error, ConflictError):  # another process took the pond over
                with contextlib.suppress(ConflictError):
                    self._pond.stop()
            try:
                self._pond.start()
                self._started = True
            except ConflictError:
                self._elsewhere_until = time.monotonic() + ASK_AGAIN_S

    def stop(self) -> None:
        """Stop the pipeline, if it was started here."""
        if self._started:
            with contextlib.suppress(ConflictError):
                self._pond.stop()
