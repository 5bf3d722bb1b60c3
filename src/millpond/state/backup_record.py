"""The record of one backup: which files make it up, with a digest of each.

    backups/<epoch>-<time>-<nonce>  the record, sealed JSON, written last: without one there is no backup
    epochs/<epoch>-<nonce>          manifests, as they are in the pond
    inbox/<number>-<digest>         entries that were not executed yet
    runs/, pages/, catalog/         as in the pond; runs of a fork's parents have new names

Law: a record names only files that exist and are complete.  Files are immutable and their names are unique,
so one target can store many backups of a pond, and the next backup copies only new files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import xxhash

from millpond.errors import DataError, InvalidError
from millpond.state.checksummed_json import sealed, unsealed
from millpond.state.store.store import MissingError, Store

PREFIX = "backups/"
FORMAT = 1


@dataclass(frozen=True)
class CopiedFile:
    """A file of a backup: `name` is its name in the backup, `original` its name in the restored pond."""

    name: str
    original: str
    bytes: int
    digest: str


@dataclass(frozen=True)
class BackupRecord:
    pond: str
    epoch: int
    nonce: str  # the nonce of the epoch's manifest
    made_us: int
    floor: int  # the oldest epoch that the restored pond can read, except savepoints
    source: str  # the uri of the pond that was copied
    files: tuple[CopiedFile, ...]
    # the names in the backup of runs that belong to a fork's parents
    moved: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.epoch:016d}-{self.made_us}-{self.nonce}"

    @property
    def size(self) -> int:
        return sum(file.bytes for file in self.files)

    def encode(self) -> bytes:
        return sealed(
            {
                "format": FORMAT,
                "pond": self.pond,
                "epoch": self.epoch,
                "nonce": self.nonce,
                "made_us": self.made_us,
                "floor": self.floor,
                "source": self.source,
                "moved": dict(self.moved),
                "files": [[f.name, f.original, f.bytes, f.digest] for f in self.files],
            }
        )


def file_digest(data: Any) -> str:
    """
    >>> file_digest(b"abc")
    '06b05ab6733a618578af5f94892f3950'
    """
    return xxhash.xxh3_128_hexdigest(memoryview(data))


def decode(name: str, raw: bytes) -> BackupRecord:
    try:
        data = unsealed(raw)
        if data["format"] > FORMAT:
            raise DataError(
                "this backup was written by a newer version of millpond",
                detail=f"{name} has format {data['format']}, this version reads up to {FORMAT}",
                hint="upgrade: pip install --upgrade millpond",
            )
        return BackupRecord(
            data["pond"],
            data["epoch"],
            data["nonce"],
            data["made_us"],
            data["floor"],
            data["source"],
            tuple(CopiedFile(*file) for file in data["files"]),
            data["moved"],
        )
    except (ValueError, KeyError, TypeError) as broken:
        raise DataError(
            f"{name} cannot be read",
            detail=f"{len(raw)} bytes, {broken}",
            hint="the record of this backup is damaged: use another backup of the pond",
        ) from broken


def records(store: Store) -> list[BackupRecord]:
    """The backups in a store, in the order of creation."""
    parsed = []
    for name in store.list(PREFIX):
        try:
            parsed.append(decode(name, store.get(name)))
        except MissingError:  # deleted between the listing and the read
            continue
    return sorted(parsed, key=lambda record: (record.made_us, record.epoch))


def is_backup(store: Store) -> bool:
    return bool(store.list(PREFIX))


def refuse_backup(store: Store) -> None:
    """Raise InvalidError if this location contains backups and no pond."""
    if is_backup(store):
        raise InvalidError(
            "this is a backup, not a pond",
            detail=store.uri,
            hint="make a pond of it: millpond restore BACKUP POND",
        )


def find_record(store: Store, epoch: int | None) -> BackupRecord:
    """The newest backup, or the newest one of an epoch."""
    known = records(store)
    if not known:
        raise InvalidError(
            "there is no backup here", detail=store.uri, hint="make one with millpond backup POND TARGET"
        )
    if epoch is not None:
        of_epoch = [record for record in known if record.epoch == epoch]
        if not of_epoch:
            epochs = ", ".join(str(number) for number in sorted({record.epoch for record in known}))
            raise InvalidError(
                f"there is no backup of epoch {epoch} here", detail=f"backups of epochs {epochs}"
            )
        known = of_epoch
    return known[-1]


def read_file(store: Store, file: CopiedFile) -> Any:
    """Read and verify a file of a backup."""
    try:
        data = store.map(file.name)
    except MissingError as error:
        raise DataError(
            f"{file.name} of the backup is missing", detail=store.uri, hint="use another backup of the pond"
        ) from error
    digest = file_digest(data)
    if data.size != file.bytes or digest != file.digest:
        raise DataError(
            f"{file.name} of the backup is damaged",
            detail=f"{data.size} bytes with digest {digest}, {file.bytes} with {file.digest} were written",
            hint="use another backup of the pond, or make this one again from a pond that is intact",
        )
    return data
