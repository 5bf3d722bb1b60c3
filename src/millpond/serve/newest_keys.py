"""Looks up single keys at the newest epoch, for servers that do it thousands of times a second.

No pin is written.  All files of a table are opened when it is first read at an epoch; from then on its rows
are in mapped memory, whatever is deleted meanwhile.

Law: `ready` never reads a file: it asks for two names and answers only if the newest epoch is open.  `follow`
reads at most some small manifests: a table that their epochs did not change stays open.  `open` reads what is
needed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest, manifest_name, run_id
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.store import MissingError
from millpond.state.tables.key_rows import KeyRows
from millpond.state.tables.table_spec import TableSpec

TABLES_MAX = 64  # whose files are kept open
FOLLOWED_MAX = 4  # epochs whose manifests are read at once
FOLLOWED_BYTES_MAX = 1 << 15  # of a manifest that is read where others wait: less than half a millisecond
Pinned = Callable[[], AbstractContextManager[Snapshot]]


class NewestKeys:
    """The tables of a pond by key; thread-safe."""

    def __init__(self, pinned: Pinned) -> None:
        self._pinned = pinned
        self._lock = threading.Lock()  # one thread opens at a time
        self._newest: Snapshot | None = None
        self._tables: OrderedDict[str, tuple[Sequence[RunRef], KeyRows]] = OrderedDict()
        self._opened: dict[str, tuple[int, KeyRows]] = {}  # with the epoch at which it is known to be right

    def ready(self, spec: TableSpec) -> tuple[Manifest, KeyRows] | None:
        """A table at the newest epoch, if it is open; else call `open`."""
        newest = self._newest
        if newest is None or (rows := self._at(newest, spec)) is None or not self._is_newest(newest):
            return None
        return newest.manifest, rows

    def follow(self) -> None:
        """Take the epochs that follow the newest known one, if they are few, and their manifests small."""
        for _ in range(FOLLOWED_MAX):
            newest = self._newest
            if newest is None:
                return
            name = manifest_name(newest.epoch + 1)
            size = newest.store.size(name)
            if size is None or size > FOLLOWED_BYTES_MAX:
                return
            following = history.find_manifest(newest.store, newest.epoch + 1)
            if following is None or not self.committed(following):
                return

    def committed(self, manifest: Manifest) -> bool:
        """Take an epoch whose manifest was read; False if it is not an ordinary one that comes next."""
        if not self._lock.acquire(blocking=False):
            return False  # `open` is just looking for the newest epoch
        try:
            newest = self._newest
            if newest is None or not _is_next(newest.manifest, manifest):
                return False
            changed = {ref.table for ref in manifest.added}
            removed = set(manifest.removed)
            self._opened = {
                name: (manifest.epoch, rows)
                for name, (epoch, rows) in self._opened.items()
                if epoch == newest.epoch
                and name not in changed
                and not any(run_id(ref) in removed for ref in self._tables[name][0])
            }
            self._newest = newest.following(manifest)
            return True
        finally:
            self._lock.release()

    def open(self, spec: TableSpec) -> tuple[Manifest, KeyRows] | None:
        """The same, reading files if needed; None if they were collected meanwhile."""
        with self._lock:
            newest = self._newest = self._found()
            known = self._at(newest, spec)
            if known is not None:
                return newest.manifest, known
            try:
                rows = self._rows(newest, spec)
            except MissingError:
                self._newest = None
                return None
            self._opened[spec.name] = newest.epoch, rows
            return newest.manifest, rows

    def _at(self, newest: Snapshot, spec: TableSpec) -> KeyRows | None:
        """The rows of a table as it is declared now, if they are open at an epoch."""
        opened = self._opened.get(spec.name)
        if opened is None or opened[0] != newest.epoch or not opened[1].is_of(spec):
            return None
        return opened[1]

    def _rows(self, newest: Snapshot, spec: TableSpec) -> KeyRows:
        """The rows of a table: those of an older epoch, if it has the same runs."""
        runs, cached = newest.runs(spec.name), self._tables.get(spec.name)
        if cached is not None and list(cached[0]) == list(runs) and cached[1].is_of(spec):
            return cached[1]
        made = newest.key_rows(spec)
        self._tables[spec.name] = runs, made
        self._tables.move_to_end(spec.name)
        while len(self._tables) > TABLES_MAX:
            self._opened.pop(self._tables.popitem(last=False)[0], None)
        return made

    def _found(self) -> Snapshot:
        """The newest epoch; what follows a manifest that is still there has no gap."""
        known = self._newest
        if known is not None and self._is_newest(known):
            return known
        if known is not None:
            head = history.newer_head(known.store, known.manifest)
            if head is not None:
                return known if head is known.manifest else known.following(head)
        with self._pinned() as snapshot:
            return snapshot

    @staticmethod
    def _is_newest(known: Snapshot) -> bool:
        store, epoch = known.store, known.epoch
        return store.size(manifest_name(epoch + 1)) is None and store.size(manifest_name(epoch)) is not None


def _is_next(known: Manifest, manifest: Manifest) -> bool:
    """Does an epoch follow another one, and say which runs of it were added and removed?"""
    same = manifest.pond == known.pond and manifest.parent_nonce == known.nonce
    return same and manifest.epoch == known.epoch + 1 and manifest.kind == "epoch"
