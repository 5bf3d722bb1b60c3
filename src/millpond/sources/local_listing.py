"""The files below a folder of this machine, looked at again only as far as it changed.

Law: a file that comes, goes or is replaced changes the time of its directory, and a name that stands for
another file has another inode: both are seen by the next look.  A file that is rewritten in place shows
neither, nor does one whose name and inode are both used again, so everything is looked at anew after a rest;
it is long only where looking takes long.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

LARGE = 1_000  # files of a directory that is remembered; smaller ones are looked at anew each time
REST = 20  # times what a whole look took, until the next
REST_S_MAX = 60.0
SETTLED_NS = 3_000_000_000  # a directory that changed so long ago has another time after its next change


class Found(NamedTuple):
    """A file as a listing shows it; its path is relative to the folder, with '/'."""

    path: str
    size: int
    mtime_us: int
    legible: bool = True  # False: the name is not UTF-8, and `path` only shows what it looks like
    problem: str | None = None  # why nothing more is known of it: a link that leads to itself


@dataclass(frozen=True)
class _Directory:
    mtime_ns: int
    settled: bool  # had it that time long enough to be known by it?
    until_s: float  # when all of it is looked at anew, by the monotonic clock
    files: dict[str, tuple[int, Found]]  # by name: inode, and the file
    folders: tuple[str, ...]


class LocalListing:
    def __init__(self, root: str, hidden: Callable[[str], bool]) -> None:
        self._root = root.rstrip("/") + "/"
        self._hidden = hidden
        self._directories: dict[str, _Directory] = {}
        self._files: list[Found] = []
        self._lock = threading.Lock()

    def files(self) -> list[Found]:
        """All files, in no order: the very list of the call before when nothing changed."""
        with self._lock:
            seen = dict(self._walk(""))
            if seen.keys() != self._directories.keys() or any(
                seen[name].files is not held.files for name, held in self._directories.items()
            ):
                self._files = [file for one in seen.values() for _, file in one.files.values()]
            self._directories = seen
            return self._files

    def _walk(self, inside: str) -> Iterator[tuple[str, _Directory]]:
        try:
            found = self._look(inside, self._directories.get(inside))
        except FileNotFoundError:
            if inside:
                return  # gone since it was listed, with all that was in it
            raise
        yield inside, found
        for name in found.folders:
            yield from self._walk(f"{inside}{name}/")

    def _look(self, inside: str, held: _Directory | None) -> _Directory:
        path = self._root + inside
        began_s, began_ns, mtime_ns = time.monotonic(), time.time_ns(), os.stat(path).st_mtime_ns
        whole = held is None or len(held.files) < LARGE or began_s >= held.until_s
        if held is not None and not whole and held.settled and held.mtime_ns == mtime_ns:
            return held
        known = {} if whole or held is None else held.files
        files: dict[str, tuple[int, Found]] = {}
        folders = []
        with os.scandir(path) as entries:
            for entry in entries:
                if self._hidden(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                    continue
                same = known.get(entry.name)
                if same is not None and same[0] == entry.inode():
                    files[entry.name] = same
                    continue
                file = _file(inside, entry)
                if file is not None:
                    files[entry.name] = entry.inode(), file
        if held is not None and files == held.files:
            files = held.files  # nobody need look for what changed
        took_s = time.monotonic() - began_s
        until_s = began_s + min(REST * took_s, REST_S_MAX) if whole or held is None else held.until_s
        settled = mtime_ns < began_ns - SETTLED_NS
        return _Directory(mtime_ns, settled, until_s, files, tuple(folders))


def _file(inside: str, entry: os.DirEntry[str]) -> Found | None:
    problem = None
    try:
        try:
            if not entry.is_file():
                return None
            stat = entry.stat()
        except FileNotFoundError:
            raise
        except OSError as error:
            problem = os.strerror(error.errno or 0)
            stat = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # gone since it was listed: it was never there
    path = inside + entry.name
    shown = path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")
    return Found(shown, stat.st_size, stat.st_mtime_ns // 1000, shown == path, problem)
