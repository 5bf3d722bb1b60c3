"""Copies one epoch of a pond consistently, while the pond runs.

Law: a backup is complete or does not exist.  The epoch is pinned while it is copied, every file is verified
as it is read, and the record that names the files is written last.  Files that the target already has are not
copied again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from millpond.clock import Clock, SystemClock
from millpond.engine.task.worker import local_name
from millpond.errors import DataError, InvalidError, UnavailableError
from millpond.serve.reader import Reader
from millpond.state import inbox
from millpond.state.backup_record import (
    BackupRecord,
    CopiedFile,
    file_digest,
    read_file,
    records,
)
from millpond.state.manifest import history
from millpond.state.manifest.garbage import files_of
from millpond.state.manifest.listing import live_runs
from millpond.state.manifest.manifest import Manifest, decode_page, is_retained, manifest_name
from millpond.state.manifest.pins import Pin, let_go, try_pin
from millpond.state.plan_file import check_plan
from millpond.state.runs import run_names
from millpond.state.runs.packed import PackedFile
from millpond.state.store.store import MissingError, Store

TRIES = 8
PIN_US = 60 * 60 * 1_000_000  # how long a crashed backup protects its epoch


@dataclass(frozen=True)
class CopyProgress:
    """How far a backup or a restore has come."""

    files: int
    files_total: int
    bytes: int


@dataclass(frozen=True)
class Backup:
    """What was backed up: the totals, and what had to be copied."""

    pond: str
    epoch: int
    uri: str
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int
    inbox_entries: int  # entries that are acknowledged but not executed by the epoch
    verified: bool


OnCopy = Callable[[CopyProgress], None]


def back_up(
    reader: Reader,
    target: Store,
    epoch: int | str | None = None,
    *,
    verify: bool = False,
    on_progress: OnCopy | None = None,
    clock: Clock | None = None,
) -> Backup:
    """Copy an epoch to another store, so that a pond can be restored from it."""
    own, other = (f"{store.uri.partition('?')[0].rstrip('/')}/" for store in (reader.store, target))
    if other.startswith(own):
        raise InvalidError(
            "a pond cannot be backed up into itself",
            detail=target.uri,
            hint="name a location outside of the pond",
        )
    if history.epochs(target):
        raise InvalidError(
            "the target of a backup must not be a pond", detail=target.uri, hint="name another location"
        )
    made = None
    for _ in range(TRIES):
        with _Pinned(reader, clock or SystemClock()) as pinned:
            taken = pinned.take(epoch)
            made = None if taken is None else _Copy(reader, target, taken, pinned, on_progress).run()
        if made is not None:
            break
    if made is None:
        raise UnavailableError(
            "the epoch was collected while it was backed up",
            detail=f"{TRIES} tries, each time what was needed had been collected",
            hint="keep more history with retain_epochs",
        )
    record, copied = made
    if verify:
        verify_backup(target, record, on_progress)
    return Backup(
        record.pond,
        record.epoch,
        target.uri,
        len(record.files),
        record.size,
        len(copied),
        sum(file.bytes for file in copied),
        sum(file.original.startswith(inbox.PREFIX) for file in record.files),
        verify,
    )


def verify_backup(store: Store, record: BackupRecord, on_progress: OnCopy | None = None) -> None:
    """Read every file of a backup again; DataError for the first one that is not what was written."""
    done = 0
    for number, file in enumerate(record.files):
        read_file(store, file)
        done += file.bytes
        if on_progress is not None:
            on_progress(CopyProgress(number + 1, len(record.files), done))


@dataclass(frozen=True)
class _Found:
    """The epochs to copy: the requested one last, after those that its sinks and backfills still need."""

    epoch: int
    floor: int
    manifests: tuple[Manifest, ...]
    newest: bool


class _Pinned:
    """Pins what is being copied, so that it is not collected."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._pins: list[Pin | None] = []
        self._ranges: list[tuple[int, int]] = []
        self._renew_us = 0

    def __enter__(self) -> _Pinned:
        return self

    def __exit__(self, *exc: object) -> None:
        self._release()

    @property
    def now_us(self) -> int:
        return self._clock.now_us()

    def take(self, epoch: int | str | None) -> _Found | None:
        """Pin an epoch and those that belong to it; None if one of them was collected meanwhile."""
        reader = self._reader
        head = reader.head()
        wanted = reader.resolve(head, epoch)
        if not is_retained(head, wanted):
            raise reader._gone(wanted)
        manifest = history.read_manifest(reader.store, wanted)
        floor = min(wanted, max(head.floor, self._needed_from(manifest)))
        named = {e for e in manifest.savepoints.values() if e < floor and is_retained(head, e)}
        self._ranges = [(floor, wanted), *((e, e) for e in sorted(named))]
        self.renew()
        now = reader.head()  # read after the pins were written: this order makes them safe
        retained = {e for e in named if is_retained(now, e)}
        if not is_retained(now, wanted) or (floor < wanted and floor < now.floor):
            return None
        # the changes of a savepoint's epoch are computed against the epoch before it
        before = {e - 1 for e in retained}
        epochs = sorted({*retained, *before, *range(floor, wanted + 1)})
        manifests = [history.find_manifest(reader.store, e) for e in epochs]
        if any(m is None for e, m in zip(epochs, manifests, strict=True) if e not in before):
            return None
        return _Found(wanted, floor, tuple(m for m in manifests if m is not None), wanted == head.epoch)

    def _needed_from(self, manifest: Manifest) -> int:
        """The oldest epoch that the pond reads when it continues from this one."""
        sinks = self._reader.plan_of(manifest).sinks
        needed = [manifest.epoch, *(max(manifest.floor, manifest.cursors.get(s, -1)) for s in sinks)]
        if manifest.backfill is not None:
            needed.append(manifest.backfill.oldest)
        return min(needed)

    def renew(self) -> None:
        """Renew the pins before they expire."""
        now_us = self._clock.now_us()
        if now_us < self._renew_us:
            return
        old, self._pins = self._pins, []
        for first, last in self._ranges:
            self._pins.append(try_pin(self._reader.store, first, now_us + PIN_US, last=last))
        self._renew_us = now_us + PIN_US // 2
        for made in old:
            let_go(self._reader.store, made)

    def _release(self) -> None:
        pins, self._pins = self._pins, []
        for made in pins:
            let_go(self._reader.store, made)


class _Copy:
    def __init__(
        self, reader: Reader, target: Store, found: _Found, pinned: _Pinned, on_progress: OnCopy | None
    ) -> None:
        self._reader = reader
        self._store = reader.store
        self._target = target
        self._found = found
        self._pinned = pinned
        self._on_progress = on_progress
        self._files: list[CopiedFile] = []
        self._copied: list[CopiedFile] = []
        self._bytes = 0
        self._total = 0

    def run(self) -> tuple[BackupRecord, list[CopiedFile]] | None:
        """The record, and the files that had to be copied; None if an inbox entry was collected meanwhile."""
        head = self._found.manifests[-1]
        before = records(self._target)
        if any(record.pond != head.pond for record in before):
            raise InvalidError(
                "the target holds backups of another pond",
                detail=f"{self._target.uri} has pond {before[-1].pond}, this is pond {head.pond}",
                hint="name another location for the backups of this pond",
            )
        self._before = before
        self._known = {file.name: file for record in before for file in record.files}
        self._there = set(self._target.list(""))
        try:
            with self._explain_missing():
                return self._run(head)
        except _Collected:
            return None

    def _run(self, head: Manifest) -> tuple[BackupRecord, list[CopiedFile]]:
        entries = self._waiting(head)
        names, moved = self._named()
        self._total = len(entries) + len(names) + len(moved) + len(self._found.manifests)
        for name, raw in entries.items():
            self._add(f"{name}-{file_digest(raw)}", name, partial(pa.py_buffer, raw))
        for name in sorted(names):
            self._add(name, name, partial(self._store.map, name))
        for name, there in sorted(moved.items()):
            store = self._reader.worker.store_of(name)
            self._add(there, there, partial(store.map, local_name(name)))
        for manifest in self._found.manifests:
            name = manifest_name(manifest.epoch)
            where = f"epochs/{manifest.epoch:016d}-{manifest.nonce}"
            self._add(where, name, partial(self._store.map, name))
        made = BackupRecord(
            head.pond,
            head.epoch,
            head.nonce,
            self._pinned.now_us,
            self._found.floor,
            self._store.uri,
            tuple(self._files),
            moved,
        )
        same = [r for r in self._before if replace(r, made_us=0) == replace(made, made_us=0)]
        if same and same[-1] is self._before[-1]:
            return same[-1], self._copied  # nothing has changed since the last backup
        self._target.put_new(made.name, made.encode())  # written last: now the backup exists
        return made, self._copied

    def _waiting(self, head: Manifest) -> dict[str, bytes]:
        """Inbox entries that are acknowledged but not executed by the epoch, if it is the newest.

        They are read first: once they are executed they may be collected.
        """
        if not self._found.newest:
            return {}
        position = inbox.next_entry(head)
        files: dict[str, bytes] = {}
        for number in range(position, max(inbox.numbers(self._store), default=-1) + 1):
            try:
                raw = self._store.get(inbox.entry_name(number))
            except MissingError:
                if inbox.is_lost(self._store, number):
                    raise inbox.lost(number) from None
                raise _Collected from None
            inbox.parse(number, raw)
            files[inbox.entry_name(number)] = raw
        return files

    def _named(self) -> tuple[set[str], dict[str, str]]:
        """The files of this pond that the epochs need, and those of its parents with their new names."""
        pages = self._reader.worker.pages
        own: set[str] = set()
        foreign: set[str] = set()
        for manifest in self._found.manifests:
            own |= files_of(manifest, pages)
            refs = (*live_runs(manifest.pages, manifest.recent, manifest.gone, pages), *manifest.added)
            foreign |= {ref.file for ref in refs if run_names.is_foreign(ref.file)}
            fill = manifest.backfill
            more = (manifest.catalog, *(() if fill is None else (fill.catalog, fill.plan)))
            own |= {name for name in more if name is not None}
        return own, {name: _own_name(name) for name in foreign}

    def _add(self, name: str, original: str, read: Callable[[], pa.Buffer]) -> None:
        """Copy a file unless it exists; a file that an interrupted backup left is verified."""
        self._pinned.renew()
        known = self._known.get(name)
        if known is None:
            data = self._target.map(name) if name in self._there else read()
            check_file(original, data)
            known = CopiedFile(name, original, data.size, file_digest(data))
            if name not in self._there:
                self._target.put_new(name, data)
                self._copied.append(known)
        elif name not in self._there:
            raise DataError(
                f"{name} of an earlier backup is missing",
                detail=self._target.uri,
                hint="back up to another place; earlier backups here cannot be restored",
            )
        self._files.append(replace(known, original=original))
        self._bytes += known.bytes
        if self._on_progress is not None:
            self._on_progress(CopyProgress(len(self._files), self._total, self._bytes))

    @contextlib.contextmanager
    def _explain_missing(self) -> Iterator[None]:
        """Explain a missing file: it was lost, or collected because no pin could be written."""
        with self._reader._explain_missing(self._found.floor, self._found.epoch):
            yield


class _Collected(Exception):
    """An inbox entry was executed and collected before it could be copied."""


def check_file(name: str, data: pa.Buffer) -> None:
    """Raise DataError unless all bytes of a pond's file are what was written."""
    folder = name.partition("/")[0] + "/"
    match folder:
        case "manifests/":
            Manifest.decode(data.to_pybytes(), name=name)
        case "pages/":
            decode_page(data.to_pybytes(), name=name)
        case "inbox/":
            inbox.parse(int(name.removeprefix(inbox.PREFIX)), data.to_pybytes())
        case "catalog/":
            check_plan(name, data.to_pybytes())
        case _ if run_names.is_plan(name):
            check_plan(name, data.to_pybytes())
        case _:
            file = PackedFile.open(name, data)
            for index in range(len(file.entries)):
                whole = file.stack(index)
                (file.segment(index) if whole is None else whole).verified()


def _own_name(name: str) -> str:
    """The name of a parent's run in the backup and in the restored pond."""
    digest = hashlib.blake2b(name.encode(), digest_size=12).hexdigest()
    return run_names.copy_name(digest)
