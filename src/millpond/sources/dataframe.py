"""Stages a bounded Spark DataFrame: runs it once, and then reads its rows from files.

A second run of a DataFrame may give other rows, so its rows are written to the pond once, and a replay reads
the files.
Law: the folder appears under its name by one rename, synced and complete, with a list of its files; an
interrupted staging leaves nothing under that name.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from millpond.errors import DataError, InvalidError
from millpond.sources.file_format import BadFileError
from millpond.sources.files import FileSource
from millpond.sources.folder import Folder, Found
from millpond.sources.parquet_format import ParquetFormat
from millpond.state.store.local_store import make_private

FOLDER = "staged"
_LIST = "_staged.json"
_STALE_S = 24 * 60 * 60  # an unfinished staging this old was abandoned
_TIMES = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True)
class DataFrameSource:
    """The rows of a DataFrame at the first run of the pond; later runs reuse them.

    `name` identifies the staged DataFrame; by default it is the name of the stream.
    """

    df: Any
    name: str | None = None

    def staged(self, folder: str | os.PathLike[str], step: str) -> FileSource:
        """The source that a pipeline reads; `folder` is the pond's, and every executor needs access to it."""
        place = Path(folder) / FOLDER / f"{quote(self.name or step, safe='')}.parquet"
        return stage(self.df, place, Path(folder))


def stage(df: Any, folder: str | os.PathLike[str], pond_folder: Path | None = None) -> FileSource:
    """Write a DataFrame to a folder, unless it is already there."""
    final = Path(folder).absolute()
    if not is_staged(final):
        if getattr(df, "isStreaming", False):
            raise InvalidError(
                "a streaming DataFrame has no end, and a DataFrameSource ends",
                hint="pass the DataFrame itself to pond.stream, or a StreamingDataFrameSource",
            )
        make_private(pond_folder or final.parent)
        stage_files(df, final)
    _check(final)
    return FileSource(str(final), bounded=True)


def is_staged(final: Path) -> bool:
    """Does a folder have all rows of a DataFrame?"""
    return (final / _LIST).exists()


def stage_files(df: Any, final: Path) -> None:
    """Write a DataFrame to a folder that appears under its name when it is complete."""
    final.parent.mkdir(parents=True, exist_ok=True)
    _clear(final)
    _publish(_write(df, final), final)


def _write(df: Any, final: Path) -> Path:
    """Write the rows to a hidden folder, synced and with a list of the files."""
    making = final.with_name(f".{final.name}.{secrets.token_hex(8)}")
    try:
        with _exact_times(df.sparkSession):
            df.write.mode("error").parquet(making.as_uri())
        files = _files(making)
        if not (making / "_SUCCESS").exists() or not files:
            raise InvalidError(
                "the rows of the DataFrame were not written to the pond",
                detail=f"Spark reported success, but {making} has {len(files)} files",
                hint="executors write to the pond's folder: put it on a file system that they share",
            )
        listed = {path: [file.size, _etag(making, file)] for path, file in files.items()}
        (making / _LIST).write_text(json.dumps(listed, indent=1, sort_keys=True))
        for path in sorted(making.rglob("*"), reverse=True):  # files before their folders
            _sync(path)
        _sync(making)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return making


def _publish(making: Path, final: Path) -> None:
    try:
        os.rename(making, final)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        shutil.rmtree(making)  # another process staged it first
    _sync(final.parent)


def _clear(final: Path) -> None:
    """Remove the files of an interrupted staging."""
    if final.exists() and not (final / _LIST).exists():
        shutil.rmtree(final)
    for left in final.parent.glob(f".{final.name}.*"):
        if time.time() - left.stat().st_mtime > _STALE_S:
            shutil.rmtree(left, ignore_errors=True)


def _check(final: Path) -> None:
    """Check that the staged files are unchanged."""
    listed = json.loads((final / _LIST).read_text())
    files = _files(final)
    for path in sorted({*listed, *files}):
        wanted = listed.get(path)
        file = files.get(path)
        found = None if file is None else [file.size, _etag(final, file)]
        if found != wanted:
            raise DataError(
                f"the staged file {path!r} was changed or removed",
                detail=f"size and etag were {wanted}, and are {found}, in {str(final)!r}",
                hint="restore it; its rows may already be in views",
            )


def _files(folder: Path) -> dict[str, Found]:
    return {file.path: file for file in Folder(str(folder)).list(None)}


def _etag(folder: Path, file: Found) -> str:
    try:
        return ParquetFormat().etag(Folder(str(folder)), file)
    except BadFileError as error:
        return str(error)


@contextmanager
def _exact_times(session: Any) -> Iterator[None]:
    """Write timestamps as microseconds: the older 96-bit format loses whether they have a time zone."""
    before = session.conf.get(_TIMES)
    session.conf.set(_TIMES, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        session.conf.set(_TIMES, before)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
