"""A folder of files, on this machine or on any file system that Arrow can open.

Files and folders whose names start with '_' or '.', and files that end in
'.tmp', are being written by somebody or are not data: they are not there.
Links to folders are not followed, so a listing always ends.
"""

from __future__ import annotations

import fnmatch
import functools
import os
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from millpond.errors import InvalidError, UnavailableError


class Found(NamedTuple):
    """A file as a listing shows it; its path is relative to the folder, with '/'."""

    path: str
    size: int
    mtime_us: int
    legible: bool = True  # False: the name is not UTF-8, and `path` only shows what it looks like


class Folder:
    def __init__(self, uri: str) -> None:
        self.uri = uri
        if "://" in uri:
            try:
                self._fs, self._root = fs.FileSystem.from_uri(uri)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
                raise InvalidError(f"not a folder that can be opened: {uri!r}", detail=str(error)) from error
        else:
            self._fs, self._root = fs.LocalFileSystem(), uri
        self.local = isinstance(self._fs, fs.LocalFileSystem)

    def check(self) -> None:
        """Refuse what is not a folder."""
        try:
            kind = self._fs.get_file_info(self._root).type
        except OSError as error:
            raise self._unavailable(error) from error
        if kind == fs.FileType.File:
            raise InvalidError(
                f"{self.uri!r} is a file, and a folder is followed",
                hint="pass its folder, and pattern= with the file's name",
            )
        if kind == fs.FileType.NotFound:
            raise InvalidError(f"there is no folder {self.uri!r}", hint="make it first; it may be empty")

    def list(self, pattern: str | None) -> list[Found]:
        """All files, in order of time, then of name."""
        try:
            found = list(self._walk("") if self.local else self._select())
        except OSError as error:
            raise self._unavailable(error) from error
        if pattern is not None:
            found = [f for f in found if fnmatch.fnmatchcase(f.path, pattern)]
        return sorted(found, key=attrgetter("mtime_us", "path"))

    def find(self, path: str) -> Found | None:
        """One file as it is now."""
        try:
            info = self._fs.get_file_info(self._full(path))
        except OSError as error:
            raise self._unavailable(error) from error
        return _found(path, info) if info.type == fs.FileType.File else None

    def open(self, path: str) -> pa.NativeFile:
        """For reading at any place; raises FileNotFoundError when it is gone."""
        return self._fs.open_input_file(self._full(path))

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"

    def _walk(self, inside: str) -> Iterator[Found]:
        try:
            entries = os.scandir(self._full(inside))
        except FileNotFoundError:
            if inside:
                return  # gone since it was listed, with all that was in it
            raise
        with entries:
            for entry in entries:
                if _hidden(entry.name):
                    continue
                path = inside + entry.name
                if entry.is_dir(follow_symlinks=False):
                    yield from self._walk(path + "/")
                    continue
                try:
                    if not entry.is_file():
                        continue
                    stat = entry.stat()
                except FileNotFoundError:
                    continue  # gone since it was listed: it was never there
                shown = path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")
                yield Found(shown, stat.st_size, stat.st_mtime_ns // 1000, shown == path)

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
            hint="nothing that was read is lost; bring it back and start again",
        )


@functools.lru_cache(maxsize=64)
def open_folder(uri: str) -> Folder:
    """A folder by its address, made once in a process."""
    return Folder(uri)


def _hidden(name: str) -> bool:
    return name.startswith(("_", ".")) or name.endswith(".tmp")


def _found(path: str, info: fs.FileInfo) -> Found:
    return Found(path, info.size, (info.mtime_ns or 0) // 1000)
