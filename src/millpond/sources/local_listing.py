"""Lists the files of a local folder again at a cost that follows the changes.

Law: a file that is added, removed or replaced changes the mtime of its directory, and a name that refers to
another file has another inode: the next listing sees both.  A file that is rewritten in place shows neither,
nor does one whose name and inode are both reused.  So everything is listed again after a pause; the pause is
long only if listing takes long.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

LARGE = 1_000  # files; smaller directories are listed completely each time
REST = 20  # the pause until the next full listing, as a multiple of its duration
REST_S_MAX = 60.0
SETTLED_NS = 3_000_000_000  # after this time, a further change gives the directory another mtime


class Found(NamedTuple):
    """A file in a listing; its path is relative to the folder, with '/'."""

    path: str
    size: int
    mtime_us: int
    legible: bool = True  # False: the name is not UTF-8, and `path` is only for messages
    problem: str | None = None  # why it cannot be opened, such as a link to itself


@dataclass(frozen=True)
class _Directory:
    mtime_ns: int
    settled: bool  # is its mtime old enough to show the next change?
    until_s: float  # the time of the next full listing, by the monotonic clock
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
        """All files, unordered; the same list object as before if nothing changed."""
        with self._lock:
            seen = dict(self._walk(""))
            if seen.keys() != self._directories.keys() or any(
                seen[name].files is not before.files for name, before in self._directories.items()
            ):
                self._files = [file for one in seen.values() for _, file in one.files.values()]
            self._directories = seen
            return self._files

    def _walk(self, inside: str) -> Iterator[tuple[str, _Directory]]:
        try:
            found = self._look(inside, self._directories.get(inside))
        except FileNotFoundError:
            if inside:
                return  # removed since it was listed
            raise
        yield inside, found
        for name in found.folders:
            yield from self._walk(f"{inside}{name}/")

    def _look(self, inside: str, before: _Directory | None) -> _Directory:
        path = self._root + inside
        began_s, began_ns, mtime_ns = time.monotonic(), time.time_ns(), os.stat(path).st_mtime_ns
        read_all = before is None or len(before.files) < LARGE or began_s >= before.until_s
        if before is not None and not read_all and before.settled and before.mtime_ns == mtime_ns:
            return before
        known = {} if read_all or before is None else before.files
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
        if before is not None and files == before.files:
            files = before.files  # unchanged: callers compare by identity
        took_s = time.monotonic() - began_s
        until_s = began_s + min(REST * took_s, REST_S_MAX) if read_all or before is None else before.until_s
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
        return None  # removed since it was listed
    path = inside + entry.name
    shown = path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")
    return Found(shown, stat.st_size, stat.st_mtime_ns // 1000, shown == path, problem)
