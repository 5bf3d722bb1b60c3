"""A store that dies before the next commit: the work of the epoch is done, and its manifest never put."""

from __future__ import annotations

import pyarrow as pa

from millpond.state.history import PREFIX
from millpond.state.store import Data, Names, Put, Store


class Died(Exception):
    """The process "was killed" here."""


class DyingStore:
    """Like the store below it, until it is `armed`."""

    def __init__(self, below: Store) -> None:
        self._below = below
        self.armed = False

    @property
    def uri(self) -> str:
        return self._below.uri

    def put_new(self, name: str, data: Data) -> Put:
        if self.armed and name.startswith(PREFIX):
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
