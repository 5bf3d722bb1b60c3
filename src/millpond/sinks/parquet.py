"""A folder of Parquet files, one for each epoch that changed the view: exactly once.

Law 7: a file is written under a hidden name, synced, and linked to its name,
which says pond and epoch; a link fails where the name exists, so an
epoch that is delivered again is already there.  Whoever lists `*.parquet` at any
moment sees whole epochs, each once, without a gap behind them.
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
from millpond.errors import DataError, InvalidError, UnavailableError
from millpond.flow.calls import checked
from millpond.state.whole import repeated

POND, EPOCH = b"millpond.pond", b"millpond.epoch"  # in the metadata of each file
_HIDDEN = ".millpond"  # files being written; on the same disk as their names, or a link is not possible


@checked
@dataclass(frozen=True)
class ParquetSink:
    """Files ``epoch-<epoch>-<pond>.parquet`` in a folder of this machine.

    Mode "changes" keeps the weight `_w` of each row: 1 came, -1 went.  Mode "append" writes plain rows, and
    refuses a view that takes rows back.
    """

    folder: str | os.PathLike[str]  # kept as absolute text
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
                # It exists when a coordinator that was taken for dead got there first, with the same rows.
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
                "an append-only sink cannot take rows back",
                detail=f"{taken_back} of {delta.num_rows} changes are retractions, for {self.folder!r}",
                hint='use mode="changes", or deliver a view that only grows, such as windows shown on close',
                epoch=epoch,
            )
        return repeated(delta, [n for n in delta.column_names if n != deltas.WEIGHT])


def _hidden_folder(folder: Path) -> Path:
    hidden = folder / _HIDDEN
    if not hidden.exists():
        missing = [p for p in (hidden, *hidden.parents) if not p.exists()]
        hidden.mkdir(parents=True, exist_ok=True)
        for made in missing:
            _sync(made.parent)
    return hidden


def _clear(hidden: Path, pond: str) -> None:
    """Remove what earlier deliveries of this pond left when they were killed."""
    for left in hidden.glob(f"{pond}-*.tmp"):
        left.unlink(missing_ok=True)


def _write(path: Path, rows: pa.Table, metadata: dict[bytes, bytes]) -> None:
    rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), **metadata})
    with path.open("xb") as file:
        pq.write_table(rows, file)
        file.flush()
        os.fsync(file.fileno())


def _check(path: Path, pond: str, epoch: int) -> None:
    """What stands under the name must be this epoch, whole."""
    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path.name!r} is there, and cannot be read", detail=" ".join(str(error).split()), epoch=epoch
        ) from error
    found = (metadata.get(POND), metadata.get(EPOCH))
    if found != (pond.encode(), str(epoch).encode()):
        raise DataError(
            f"{path.name!r} is there, and holds something else",
            detail=f"it says pond {found[0]!r}, epoch {found[1]!r}; this is {pond!r}, {epoch}",
            hint="somebody else wrote it; move it away, and the epoch is delivered",
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
