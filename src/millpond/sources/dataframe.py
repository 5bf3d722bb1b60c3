"""Any bounded Spark DataFrame, staged: run once, then read from files like any other input.

A DataFrame promises nothing about a second run, so its rows are written once,
into the pond, and replay reads what was written.  The folder appears under its
name by one rename, synced and complete, with a list of its files; a
staging that was cut short leaves nothing that could be taken for it.
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
from millpond.state.local_store import make_private

FOLDER = "staged"
_LIST = "_staged.json"
_STALE_S = 24 * 60 * 60  # an unfinished staging this old is nobody's
_TIMES = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True)
class DataFrameSource:
    """The rows of a DataFrame, as they are when the pond first meets it; later runs of the pond reuse them.

    `name` tells one staged DataFrame from another; without one it is the name of the stream.
    """

    df: Any
    name: str | None = None

    def staged(self, folder: str | os.PathLike[str], step: str) -> FileSource:
        """The source that a pipeline reads; `folder` is the pond's, and every executor must reach it."""
        place = Path(folder) / FOLDER / f"{quote(self.name or step, safe='')}.parquet"
        return stage(self.df, place, Path(folder))


def stage(df: Any, folder: str | os.PathLike[str], pond_folder: Path | None = None) -> FileSource:
    """Write a DataFrame into a folder, unless that was done before."""
    final = Path(folder).absolute()
    if not (final / _LIST).exists():
        if getattr(df, "isStreaming", False):
            raise InvalidError(
                "a streaming DataFrame has no end, and cannot be staged", hint="pass a batch DataFrame"
            )
        make_private(pond_folder or final.parent)
        final.parent.mkdir(parents=True, exist_ok=True)
        _clear(final)
        _publish(_write(df, final), final)
    _check(final)
    return FileSource(str(final))


def _write(df: Any, final: Path) -> Path:
    """The rows on disk, synced and listed, under a name that nobody reads."""
    making = final.with_name(f".{final.name}.{secrets.token_hex(8)}")
    try:
        with _exact_times(df.sparkSession):
            df.write.mode("error").parquet(making.as_uri())
        files = _files(making)
        if not (making / "_SUCCESS").exists() or not files:
            raise InvalidError(
                "the rows of the DataFrame did not arrive",
                detail=f"Spark reported success, and {making} holds {len(files)} files",
                hint="executors write to the folder of the pond: put it on a file system that they share",
            )
        listed = {path: [file.size, _etag(making, file)] for path, file in files.items()}
        (making / _LIST).write_text(json.dumps(listed, indent=1, sort_keys=True))
        for path in sorted(making.rglob("*"), reverse=True):  # what is in a folder before the folder
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
        shutil.rmtree(making)  # another process staged it first: theirs is the one
    _sync(final.parent)


def _clear(final: Path) -> None:
    """Remove what a staging that was cut short left behind."""
    if final.exists() and not (final / _LIST).exists():
        shutil.rmtree(final)
    for left in final.parent.glob(f".{final.name}.*"):
        if time.time() - left.stat().st_mtime > _STALE_S:
            shutil.rmtree(left, ignore_errors=True)


def _check(final: Path) -> None:
    """What was staged must still be there, unchanged."""
    listed = json.loads((final / _LIST).read_text())
    files = _files(final)
    for path in sorted({*listed, *files}):
        wanted = listed.get(path)
        file = files.get(path)
        found = None if file is None else [file.size, _etag(final, file)]
        if found != wanted:
            raise DataError(
                f"the staged file {path!r} is not as it was written",
                detail=f"size and etag were {wanted}, and are {found}, in {str(final)!r}",
                hint="restore it; a DataFrame is read once, and its rows may be in views already",
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
    """Microseconds since 1970 with or without a zone, and not the old 96 bits that lose the difference."""
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
