"""A store that fails before the next commit: the epoch has run, but its manifest is never written."""

from __future__ import annotations

import pyarrow as pa

from millpond.state.manifest.history import PREFIX
from millpond.state.store.store import Data, Names, Put, Store


class Died(Exception):
    """The simulated kill of the process."""


class DyingStore:
    """Behaves like the underlying store until it is `armed`."""

    def __init__(self, below: Store) -> None:
        self._below = below
        self.armed = False
        self.armed_after: int | None = None  # commits until it is armed

    @property
    def uri(self) -> str:
        return self._below.uri

    def put_new(self, name: str, data: Data) -> Put:
        if name.startswith(PREFIX):
            if self.armed_after is not None:
                self.armed_after -= 1
                self.armed = self.armed_after < 0
            if self.armed:
                raise Died(f"before {name}")
        return self._below.put_new(name, data)

    def get(self, name: str) -> bytes:
        return self._below.get(name)

    def map(self, name: str) -> pa.Buffer:
        return self._below.map(name)

    def list(self, prefix: str, after: str | None = None) -> Names:
        return self._below.list(prefix, after)

    def delete(self, name: str) -> None:
        self._below.delete(name)

    def size(self, name: str) -> int | None:
        return self._below.size(name)
