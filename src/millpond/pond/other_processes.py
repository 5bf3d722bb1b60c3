"""What processes that have one pond open must know of each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from millpond.errors import InvalidError
from millpond.pond.api import Pond
from millpond.pond.api import open as open_pond


@dataclass(frozen=True)
class PondOpening:
    """The arguments of `open`; the store options may hold credentials."""

    uri: str
    trust: bool
    settings: Mapping[str, Any]
    store_options: Mapping[str, Any] = field(repr=False)

    def open(self) -> Pond:
        """Open the pond in this process, without Spark."""
        return open_pond(
            self.uri, "inline", trust=self.trust, store_options=self.store_options, **self.settings
        )


def opening_of(pond: Pond) -> PondOpening:
    """What another process needs to open a pond."""
    if pond.store.uri.startswith("memory:"):
        raise InvalidError("a pond in memory cannot be opened by another process", hint="use a folder")
    components = pond._components
    return PondOpening(
        pond.store.uri, components.worker.trust.given, asdict(pond.settings), dict(components.options)
    )


def is_run_elsewhere(pond: Pond) -> bool:
    """Does another process run the pond, as far as its lease tells?"""
    return pond._execution.elsewhere() is not None


def wake(pond: Pond) -> None:
    """Look for input now, if the pond runs here in the background."""
    runner = pond._execution.runner
    if runner is not None:
        runner.wake()


def release(pond: Pond) -> None:
    """Let another process run a pond that this one has opened."""
    pond._execution.release()
