"""Writes one Parquet file for each epoch that changed the view, exactly once.

Law 7: a file is written under a hidden name, synced, and linked to its final name, which has pond and epoch.
The link fails if the name exists, so an epoch that is delivered again changes nothing.
A listing of `*.parquet` at any time shows complete epochs, each once, without gaps.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from millpond import delta as deltas
from millpond.arguments.call_errors import checked
from millpond.errors import DataError, InvalidError, UnavailableError
from millpond.state.tables.repeat_by_weight import repeat_by_weight

POND, EPOCH = b"millpond.pond", b"millpond.epoch"  # in the metadata of each file
_HIDDEN = ".millpond"  # files being written; on the same disk, as links require


@checked
@dataclass(frozen=True)
class ParquetSink:
    """Files ``epoch-<epoch>-<pond>.parquet`` in a folder of this machine.

    Mode "changes" writes the weight `_w` of each row: 1 added, -1 removed.  Mode "append" writes plain rows
    and refuses a view that retracts rows.
    """

    folder: str | os.PathLike[str]  # stored as an absolute path
    mode: Literal["changes", "append"] = "changes"

    exactly_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | os.PathLike) or not os.fspath(self.folder):
            raise InvalidError("a ParquetSink needs a folder", detail=f"got {self.folder!r}")
        folder = os.fspath(self.folder)
        if "://" in folder:
            raise InvalidError("a parquet sink writes to a folder of this machine", detail=f"got {folder!r}")
        if self.mode not in ("changes", "append"):
            raise InvalidError(f"no mode named {self.mode!r}", hint='"changes" or "append"')
        object.__setattr__(self, "folder", str(Path(folder).expanduser().absolute()))

    @property
    def append_only(self) -> bool:
        return self.mode == "append"

    def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None:
        rows = self._rows(delta, epoch)
        final = Path(self.folder) / f"epoch-{epoch:016d}-{pond}.parquet"
        with _disk(final):
            hidden = _hidden_folder(final.parent)
            if not final.exists():
                _clear(hidden, pond)
                temp = hidden / f"{pond}-{epoch}-{secrets.token_hex(8)}.tmp"
                _write(temp, rows, {POND: pond.encode(), EPOCH: str(epoch).encode()})
                # It exists if another coordinator, believed dead, has written the same rows first.
                with suppress(FileExistsError):
                    os.link(temp, final)
                temp.unlink(missing_ok=True)
            _check(final, pond, epoch)
            _sync(final.parent)

    def _rows(self, delta: pa.Table, epoch: int) -> pa.Table:
        if deltas.HASH in delta.column_names:
            delta = delta.drop_columns([deltas.HASH])
        if self.mode == "changes":
            return deltas.with_weights(delta, deltas.weights(delta))
        taken_back = int((deltas.weights(delta) < 0).sum())
        if taken_back:
            raise InvalidError(
                "an append-only sink cannot retract rows",
                detail=f"{taken_back} of {delta.num_rows} changes are retractions, for {self.folder!r}",
                hint='use mode="changes", or a view that only grows, such as EMIT ON WINDOW CLOSE',
                epoch=epoch,
            )
        return repeat_by_weight(delta, [n for n in delta.column_names if n != deltas.WEIGHT])


def _hidden_folder(folder: Path) -> Path:
    hidden = folder / _HIDDEN
    if not hidden.exists():
        missing = [p for p in (hidden, *hidden.parents) if not p.exists()]
        hidden.mkdir(parents=True, exist_ok=True)
        for made in missing:
            _sync(made.parent)
    return hidden


def _clear(hidden: Path, pond: str) -> None:
    """Remove temporary files of interrupted deliveries of this pond."""
    for left in hidden.glob(f"{pond}-*.tmp"):
        left.unlink(missing_ok=True)


def _write(path: Path, rows: pa.Table, metadata: dict[bytes, bytes]) -> None:
    rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), **metadata})
    with path.open("xb") as file:
        pq.write_table(rows, file)
        file.flush()
        os.fsync(file.fileno())


def _check(path: Path, pond: str, epoch: int) -> None:
    """Check that the file is this epoch, and complete."""
    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path.name!r} exists, but cannot be read", detail=" ".join(str(error).split()), epoch=epoch
        ) from error
    found = (metadata.get(POND), metadata.get(EPOCH))
    if found != (pond.encode(), str(epoch).encode()):
        raise DataError(
            f"{path.name!r} exists, but has other content",
            detail=f"it has pond {found[0]!r}, epoch {found[1]!r}; this is {pond!r}, {epoch}",
            hint="another program wrote it; move it away, and the epoch is delivered",
            epoch=epoch,
        )


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"{path.name!r} cannot be written", detail=f"{type(error).__name__}: {error}"
        ) from error
