"""Lists and opens the files of a folder, on this machine or on any file system that Arrow supports.

Files and folders whose names start with '_' or '.', and copies that are still being written, are ignored.
Links to folders are not followed, so a listing always ends.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyarrow import fs

from millpond.errors import InvalidError, UnavailableError
from millpond.sources.local_listing import Found, LocalListing
from millpond.sources.remote_listing import RemoteListing

__all__ = ["Folder", "Found", "open_folder"]

# Endings of copies that are still being written.
_WRITTEN = (".tmp", ".part", ".partial", ".crdownload", ".filepart", "._COPYING_")
CONNECT_S = 5.0  # until a server that does not answer counts as away


class Folder:
    def __init__(self, uri: str) -> None:
        self.uri = uri
        if "://" in uri:
            try:
                found, self._root = fs.FileSystem.from_uri(uri)
                self._fs = _with_few_retries(found)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
                raise InvalidError(f"not a folder that can be opened: {uri!r}", detail=str(error)) from None
            except OSError as error:
                raise self._unavailable(error) from error
        else:
            self._fs, self._root = fs.LocalFileSystem(), uri
        self.local = isinstance(self._fs, fs.LocalFileSystem)
        self._listing = LocalListing(self._root, _hidden) if self.local else None
        self._remote = RemoteListing.of(_s3_options(self._fs), self._root) if _is_s3(self._fs) else None
        self._sorted: dict[str | None, tuple[list[Found], list[Found]]] = {}  # by pattern: of which, and what

    def check(self) -> None:
        """Refuse what is not a folder."""
        try:
            kind = self._fs.get_file_info(self._root).type
        except OSError as error:
            raise self._unavailable(error) from error
        if kind == fs.FileType.File:
            raise InvalidError(
                f"{self.uri!r} is a file, not a folder",
                hint="pass its folder, and pattern= with the file's name",
            )
        if kind == fs.FileType.NotFound:
            raise InvalidError(f"there is no folder {self.uri!r}", hint="create it first; it may be empty")

    def _files(self) -> list[Found]:
        if self._listing is not None:
            return self._listing.files()
        if self._remote is not None:
            return self._remote.files(lambda: [*self._select()], _hidden)
        return [*self._select()]

    def list(self, pattern: str | None) -> list[Found]:
        """All files, ordered by time, then name; the same list object as before if nothing seems new.

        On this machine an entry may be out of date for a while; `now` looks at the file.
        In a large bucket only names after the last one are new at once (`remote_listing`).
        """
        try:
            found = self._files()
        except OSError as error:
            raise self._unavailable(error) from error
        held = self._sorted.get(pattern)
        if held is not None and held[0] is found:
            return held[1]
        chosen = found if pattern is None else [f for f in found if fnmatch.fnmatchcase(f.path, pattern)]
        chosen = sorted(chosen, key=attrgetter("mtime_us", "path"))
        if self._listing is not None or self._remote is not None:
            self._sorted[pattern] = found, chosen
        return chosen

    def now(self, file: Found) -> Found | None:
        """A file of a listing, as it is now."""
        return self.find(file.path) if self.local else file

    def find(self, path: str) -> Found | None:
        """One file as it is now."""
        try:
            info = self._fs.get_file_info(self._full(path))
        except OSError as error:
            raise self._unavailable(error) from error
        return _found(path, info) if info.type == fs.FileType.File else None

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for random access; raises FileNotFoundError when it is gone."""
        return self._fs.open_input_file(self._full(path))

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"

    def _select(self) -> Iterator[Found]:
        root = self._root.rstrip("/") + "/"
        for info in self._fs.get_file_info(fs.FileSelector(self._root, recursive=True)):
            path = info.path.removeprefix(root)
            if info.type == fs.FileType.File and not any(_hidden(part) for part in path.split("/")):
                yield _found(path, info)

    def _unavailable(self, error: OSError) -> UnavailableError:
        return UnavailableError(
            f"folder {self.uri!r} cannot be listed",
            detail=f"{type(error).__name__}: {error}",
            hint="restore the folder and start again; nothing that was committed is lost",
        )


def _with_few_retries(found: fs.FileSystem) -> fs.FileSystem:
    """An S3 file system whose requests fail soon if the server is away.

    Arrow repeats a request for seven seconds, and the coordinator repeats the poll: together, a statement
    that waits for an epoch took minutes to fail.
    """
    if not _is_s3(found):
        return found
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=2)
    return fs.S3FileSystem(**{**_s3_options(found), "retry_strategy": retries, "connect_timeout": CONNECT_S})


def _is_s3(found: fs.FileSystem) -> bool:
    return bool(found.type_name == "s3")


def _s3_options(found: fs.FileSystem) -> dict[str, Any]:
    """The options of an S3 file system: what a pickle of it contains."""
    _, (options,) = found.__reduce__()
    return dict(options)


@functools.lru_cache(maxsize=64)
def open_folder(uri: str) -> Folder:
    """A folder by its address, created once per process."""
    return Folder(uri)


def _hidden(name: str) -> bool:
    return name.startswith(("_", ".")) or name.endswith(_WRITTEN)


def _found(path: str, info: fs.FileInfo) -> Found:
    return Found(path, info.size, (info.mtime_ns or 0) // 1000)
