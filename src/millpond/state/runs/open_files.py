"""The open files of a pond in one process; a fork's files may be in the ponds that it came from.

Files are immutable and their names are never reused, so a file that was closed can be opened again at any
time, and only the time that a read takes changes (law 4).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

from millpond.state.runs import run_names
from millpond.state.runs.packed import PackedFile
from millpond.state.store.location import options_for
from millpond.state.store.store import MapsParts, Store, open_store

FILES_OPEN = 2048
FILES_SPARE = 64  # open files that the newest epoch may not need


class OpenFiles:
    """Thread-safe."""

    def __init__(
        self,
        store: Store,
        roots: dict[str, Store] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self._options = dict(
            options or {}
        )  # with which the store was opened; a parent is opened with them, too
        self._roots = roots or {}
        self._files: OrderedDict[str, PackedFile] = OrderedDict()
        self._room = FILES_SPARE  # more open files than this trigger a trim
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    def open(self, name: str) -> PackedFile:
        known = self._files.get(name)
        if known is not None and len(self._files) < FILES_OPEN // 2:
            return known  # far from eviction: no need to record the use
        with self._lock:
            known = self._files.get(name)
            if known is not None:
                self._files.move_to_end(name)
                return known
        store, own = self.store_of(name), run_names.split_pond(name)[1]
        mapped = store.map_parts(own) if isinstance(store, MapsParts) else (store.map(own), None)
        opened = PackedFile.open(name, *mapped)
        with self._lock:
            known = self._files.setdefault(name, opened)
            while len(self._files) > FILES_OPEN:
                self._files.popitem(last=False)
        return known

    def has(self, name: str) -> bool:
        """Is the file open?"""
        return name in self._files

    @property
    def crowded(self) -> bool:
        """Have enough files been opened since the last trim to make another one worthwhile?"""
        return len(self._files) > self._room

    def trim(self, live: Collection[str]) -> None:
        """Close files that an epoch does not name: an open file that was merged still uses disk space."""
        with self._lock:
            for name in [n for n in self._files if n not in live]:
                del self._files[name]
            self._room = FILES_SPARE + len(self._files)

    def store_of(self, name: str) -> Store:
        """The store of a file; the runs of a fork may be in its parent: ``<uri>!<name>``."""
        uri, _ = run_names.split_pond(name)
        if not uri:
            return self.store
        if uri not in self._roots:
            self._roots[uri] = open_store(uri, **options_for(uri, self.store.uri, self._options))
        return self._roots[uri]
