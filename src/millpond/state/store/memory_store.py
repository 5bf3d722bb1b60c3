"""A store in this process's memory, for tests and the simulator.

It has the same contract as the others (law 6: written once, completely).  Like an in-memory database it
exists as long as it is referenced; until then its uri finds it from anywhere in the process.
"""

from __future__ import annotations

import secrets
import threading
from weakref import WeakValueDictionary

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.state.store.store import Data, Names, Put, buffers_of, check_name, check_prefix, missing

_open: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()
_open_lock = threading.Lock()


class MemoryStore:
    """A dict behind a lock."""

    def __init__(self, id: str | None = None) -> None:
        self._id = check_name(id or secrets.token_hex(8))
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()
        with _open_lock:
            if self._id in _open:
                raise InvalidError(
                    f"memory://{self._id} is open already", hint="find it with open_store, or take another id"
                )
            _open[self._id] = self

    @classmethod
    def named(cls, id: str) -> MemoryStore:
        """The open store with that id, or a new one."""
        with _open_lock:
            known = _open.get(id)
        return known if known is not None else cls(id)

    @property
    def uri(self) -> str:
        return f"memory://{self._id}"

    def put_new(self, name: str, data: Data) -> Put:
        check_name(name)
        whole = b"".join(buffers_of(data))
        with self._lock:
            if name in self._files:
                return Put.LOST
            self._files[name] = whole
        return Put.WON

    def get(self, name: str) -> bytes:
        with self._lock:
            data = self._files.get(check_name(name))
        if data is None:
            raise missing(name, self.uri)
        return data

    def map(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self.get(name))

    def list(self, prefix: str, after: str | None = None) -> Names:
        folder = check_prefix(prefix)
        start = f"{folder}/" if folder else ""
        with self._lock:
            names = list(self._files)
        return sorted(n for n in names if n.startswith(start) and (after is None or n > after))

    def delete(self, name: str) -> None:
        with self._lock:
            self._files.pop(check_name(name), None)

    def size(self, name: str) -> int | None:
        with self._lock:
            data = self._files.get(check_name(name))
        return None if data is None else len(data)
