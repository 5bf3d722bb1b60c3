"""A store over another: reads fall through, writes stay in this process.

It cannot change the pond below (law 6): a put is stored in memory, where later reads find it first, and a
delete is refused.
"""

from __future__ import annotations

import threading

import pyarrow as pa

from millpond.errors import InternalError
from millpond.state.store.store import Data, Names, Put, Store, buffers_of, check_name, check_prefix


class OverlayStore:
    """
    >>> from millpond.state.store.store import open_store
    >>> below = open_store("memory://below")
    >>> above = OverlayStore(below)
    >>> above.put_new("runs/1", b"x"), above.get("runs/1"), below.list("")
    (<Put.WON: 'won'>, b'x', [])
    """

    def __init__(self, below: Store) -> None:
        self._below = below
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return self._below.uri

    def put_new(self, name: str, data: Data) -> Put:
        whole = b"".join(buffers_of(data))
        with self._lock:
            if check_name(name) in self._files or self._below.size(name) is not None:
                return Put.LOST
            self._files[name] = whole
        return Put.WON

    def get(self, name: str) -> bytes:
        mine = self._mine(name)
        return self._below.get(name) if mine is None else mine

    def map(self, name: str) -> pa.Buffer:
        mine = self._mine(name)
        return self._below.map(name) if mine is None else pa.py_buffer(mine)

    def list(self, prefix: str, after: str | None = None) -> Names:
        folder = check_prefix(prefix)
        start = f"{folder}/" if folder else ""
        with self._lock:
            mine = [n for n in self._files if n.startswith(start) and (after is None or n > after)]
        return sorted({*self._below.list(prefix, after), *mine})

    def delete(self, name: str) -> None:
        raise InternalError("nothing may be deleted through an overlay", detail=name)

    def size(self, name: str) -> int | None:
        mine = self._mine(name)
        return self._below.size(name) if mine is None else len(mine)

    def _mine(self, name: str) -> bytes | None:
        with self._lock:
            return self._files.get(name)
