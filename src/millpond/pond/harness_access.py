"""What the test harness does to a pond and users cannot: kill it, take it over early, read its snapshot.

Law: a pond that was killed is left as `kill -9` leaves it: its lease is not released, nothing is finished.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from millpond.pond.api import Pond
from millpond.state.manifest.snapshot import Snapshot


def kill(pond: Pond) -> None:
    """Abandon a pond as a killed process does."""
    execution = pond._execution
    if execution.runner is not None:
        execution.runner.close()
    if execution.keeper is not None:
        execution.keeper.stop()  # a killed process does not release its lease


def take_over(pond: Pond) -> None:
    """Take the pond over now, and not with the first epoch."""
    pond._execution.boot()


def pinned(pond: Pond) -> AbstractContextManager[Snapshot]:
    """The newest epoch, which stays readable inside the block."""
    return pond._reader.pinned()
