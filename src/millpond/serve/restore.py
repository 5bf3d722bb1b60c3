"""Restores a pond from a backup; it continues from the epoch that was backed up.

Law: the restored pond has the same rows at that epoch, and continues with its sources, inbox and timers as
the original would have.  Every file is verified before it is written, and the manifest of the epoch is
written last.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from millpond.errors import ConflictError
from millpond.serve.backup import CopyProgress, OnCopy
from millpond.state.backup_record import BackupRecord, CopiedFile, find_record, is_backup, read_file
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest, Page, RunId, decode_page, encode_page, manifest_name
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.store import Data, Put, Store, prove_put_new

_EMPTY = "restore into an empty place"


@dataclass(frozen=True)
class Restored:
    pond: str
    epoch: int
    uri: str
    files: int
    bytes: int
    sinks: tuple[str, ...]  # sinks that have received epochs of the pond


def restore(
    backup: Store,
    target: Store,
    epoch: int | None = None,
    *,
    new_id: bool = False,
    on_progress: OnCopy | None = None,
) -> Restored:
    """Restore `backup` to `target`: the newest backup, or the newest one of an epoch.

    Run an interrupted restore again to complete it.
    """
    record = find_record(backup, epoch)
    manifests = {f.original: f for f in record.files if f.original.startswith(history.PREFIX)}
    last = manifests[manifest_name(record.epoch)]
    _refuse_pond(target, record)
    if not target.list(""):
        prove_put_new(target)
    pond = uuid.uuid4().hex if new_id else record.pond
    rewritten = _Rewritten(record, pond)
    others = [f for f in record.files if f.original not in manifests]
    ordered = [*others, *(f for f in manifests.values() if f is not last), last]
    done = 0
    for number, file in enumerate(ordered):
        data = rewritten.bytes_of(file, read_file(backup, file))
        _put(target, file.original, data)
        done += file.bytes
        if on_progress is not None:
            on_progress(CopyProgress(number + 1, len(ordered), done))
    head = history.read_manifest(target, record.epoch)
    return Restored(pond, record.epoch, target.uri, len(ordered), done, tuple(sorted(head.cursors)))


def _refuse_pond(target: Store, record: BackupRecord) -> None:
    """Refuse a target with manifests, except those that an interrupted restore of this backup left."""
    ours = {file.original for file in record.files} - {manifest_name(record.epoch)}
    if any(manifest_name(epoch) not in ours for epoch in history.epochs(target)):
        raise ConflictError("there is a pond here already", detail=target.uri, hint=_EMPTY)
    if is_backup(target):
        raise ConflictError("there is a backup here", detail=target.uri, hint=_EMPTY)


def _put(target: Store, name: str, data: Data) -> None:
    if target.put_new(name, data) is Put.WON:
        return
    there, ours = target.get(name), bytes(memoryview(data))  # type: ignore[arg-type]
    if there != ours:
        raise ConflictError(
            "there is something else here already",
            detail=f"{target.uri} has another {name}",
            hint=_EMPTY,
        )


class _Rewritten:
    """What is rewritten instead of copied: the id, the oldest epoch, and runs of a fork's parents."""

    def __init__(self, record: BackupRecord, pond: str) -> None:
        self._record = record
        self._pond = pond
        self._moved: Mapping[str, str] = record.moved

    def bytes_of(self, file: CopiedFile, data: Data) -> Data:
        if file.original.startswith("pages/") and self._moved:
            refs = decode_page(bytes(memoryview(data)), name=file.original)  # type: ignore[arg-type]
            return encode_page(self._ref(ref) for ref in refs)
        if not file.original.startswith(history.PREFIX):
            return data
        raw = bytes(memoryview(data))  # type: ignore[arg-type]
        return self._manifest(Manifest.decode(raw, name=file.original)).encode()

    def _manifest(self, manifest: Manifest) -> Manifest:
        floor = self._record.floor
        last = manifest.epoch == self._record.epoch
        return replace(
            manifest,
            pond=self._pond,
            pages=tuple(Page(page.name, page.runs) for page in manifest.pages),
            recent=tuple(self._ref(ref) for ref in manifest.recent),
            added=tuple(self._ref(ref) for ref in manifest.added),
            gone=tuple(self._id(one) for one in manifest.gone),
            removed=tuple(self._id(one) for one in manifest.removed),
            roots={} if self._moved else manifest.roots,
            floor=floor if last else manifest.floor,
            savepoints=self._savepoints(manifest) if last else manifest.savepoints,
            # A sink does not receive the epochs before the oldest one again: they are not in the backup.
            cursors={s: max(at, floor) if last else at for s, at in manifest.cursors.items()},
        )

    def _savepoints(self, manifest: Manifest) -> dict[str, int]:
        here = {file.original for file in self._record.files}
        return {name: e for name, e in manifest.savepoints.items() if manifest_name(e) in here}

    def _ref(self, ref: RunRef) -> RunRef:
        return replace(ref, file=self._moved.get(ref.file, ref.file))

    def _id(self, one: RunId) -> RunId:
        return (self._moved.get(one[0], one[0]), one[1], one[2])
