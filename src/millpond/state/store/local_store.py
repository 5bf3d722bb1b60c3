"""A store in a local folder.

A put writes a hidden temporary file, syncs it, links it to its name (a link fails if the name exists: that is
put-if-absent), and syncs the folder.  So a crash or a power failure at any point leaves a complete file or
none (laws 2 and 6).
Files are mapped, never read into the heap.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from millpond.errors import DataError, InvalidError, MillpondError
from millpond.state.store.store import (
    Data,
    Names,
    NotWritableError,
    Put,
    PutUnknownError,
    ReadOnlyError,
    StoreError,
    buffers_of,
    check_name,
    check_prefix,
    missing,
)

STALE_S = 24 * 60 * 60
_BUFFERS_MAX = 1024  # IOV_MAX on Linux and macOS
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_SHARED, _PRIVATE = 0o777, 0o700  # modes of new folders: according to the umask, and for the owner only
_TMP = ".tmp"  # names of files in the store never start with '.', so it cannot collide


def make_private(folder: Path) -> None:
    """Create the folder of a pond, if absent, for its owner only: it may contain secrets of sources."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(_PRIVATE, exist_ok=True)


class LocalStore:
    """Files below one folder; `durable=False` skips the syncs (tests, temporary ponds)."""

    def __init__(self, root: str | Path, durable: bool = True) -> None:
        self._root = Path(root).expanduser().absolute()
        self._prefix = f"{self._root}/"  # quicker than a path, for what servers ask at every read
        self._tmp = self._root / _TMP
        self._durable = durable
        # Folders that are known to survive a power failure.  A folder that another process created is not:
        # that process may have died before the sync.
        self._settled: set[Path] = set()

    @property
    def uri(self) -> str:
        return self._root.as_uri() + ("" if self._durable else "?durable=false")

    def put_new(self, name: str, data: Data) -> Put:
        target = self._root / check_name(name)
        pieces = buffers_of(data)
        temp = self._tmp / f"{os.getpid()}-{secrets.token_hex(8)}"
        linked = False
        try:
            if self._tmp not in self._settled:  # the first put of this process
                self._settle(self._tmp)
                self.sweep()
            self._settle(target.parent)
            try:
                self._write(temp, pieces)
                linked = _link_new(temp, target)
            finally:
                temp.unlink(missing_ok=True)
            # The loser syncs too: what it now reads under the name must survive a power failure,
            # and the winner may have died before its own sync.
            self._sync_folder(target.parent)
        except OSError as error:
            raise self._failure(name, pieces, error, linked) from error
        return Put.WON if linked else Put.LOST

    def get(self, name: str) -> bytes:
        try:
            return (self._root / check_name(name)).read_bytes()
        except _NOT_THERE as error:
            raise missing(name, self.uri) from error
        except OSError as error:
            raise _unreadable(name, error) from error

    def map(self, name: str) -> pa.Buffer:
        try:
            return map_file(self._root / check_name(name))
        except _NOT_THERE as error:
            raise missing(name, self.uri) from error
        except OSError as error:
            raise _unreadable(name, error) from error

    def list(self, prefix: str, after: str | None = None) -> Names:
        folder = check_prefix(prefix)
        names: Names = []
        pending = [folder]
        try:
            while pending:
                inside = pending.pop()
                start = f"{inside}/" if inside else ""
                for entry in _entries(self._root / inside):
                    if entry.is_dir():
                        pending.append(start + entry.name)
                    else:
                        names.append(start + entry.name)
        except OSError as error:
            raise _unreadable(prefix, error) from error
        return sorted(name for name in names if after is None or name > after)

    def delete(self, name: str) -> None:
        try:
            (self._root / check_name(name)).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise StoreError(f"cannot delete {name}", detail=str(error)) from error

    def size(self, name: str) -> int | None:
        try:
            status = os.stat(f"{self._prefix}{check_name(name)}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(name, error) from error
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def sweep(self, now: float | None = None) -> int:
        """Remove temporary files that crashed writers left a day ago or earlier; returns their number."""
        horizon = (time.time() if now is None else now) - STALE_S
        stale = [e for e in _entries(self._tmp) if _modified_s(e) < horizon]
        return sum(_removed(Path(entry.path)) for entry in stale)

    def _write(self, temp: Path, pieces: Sequence[memoryview]) -> None:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            write_buffers(fd, pieces)
            if self._durable:
                sync(fd)
        finally:
            os.close(fd)

    def _settle(self, folder: Path) -> None:
        """Create the folder and its parents, so that they survive a power failure."""
        if folder in self._settled:
            return
        if folder != self._root:
            self._settle(folder.parent)
            self._make(folder)
        else:
            above = [folder, *folder.parents]
            absent = [path for path in above if not path.exists()]
            for path in reversed(absent):
                self._make(path, _PRIVATE if path == self._root else _SHARED)
        self._settled.add(folder)

    def _make(self, folder: Path, mode: int = _SHARED) -> None:
        try:
            folder.mkdir(mode, exist_ok=True)
        except FileExistsError as error:
            raise _both(folder) from error
        self._sync_folder(folder.parent)

    def _sync_folder(self, folder: Path) -> None:
        if not self._durable:
            return
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(fd)
        finally:
            os.close(fd)

    def _failure(
        self, name: str, pieces: Sequence[memoryview], error: OSError, linked: bool
    ) -> MillpondError:
        if linked:
            return PutUnknownError(f"{name} was written but may not survive a power cut", detail=str(error))
        if error.errno in _FULL:
            needed = sum(buffer.nbytes for buffer in pieces)
            free = shutil.disk_usage(self._root if self._root.exists() else Path("/")).free
            return NotWritableError(
                f"no room to write {name}",
                detail=f"needs {needed} bytes, the volume has {free} free ({os.strerror(error.errno)})",
                hint=f"free space on the volume of {self._root}, then retry; nothing was written",
            )
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            hint = "the file system must support hard links, and this user must be allowed to make them"
            kind = ReadOnlyError if error.errno == errno.EPERM else StoreError
            return kind(f"cannot write {name}", detail=str(error), hint=hint)
        if error.errno in (errno.EROFS, errno.EACCES):
            hint = "reading works all the same; to write, mount it writable and give this user write access"
            return ReadOnlyError(f"cannot write {name}", detail=str(error), hint=hint)
        return StoreError(f"cannot write {name}", detail=str(error))


def write_buffers(fd: int, pieces: Sequence[memoryview]) -> None:
    """Write all buffers without joining them; a short write is continued where it stopped."""
    rest = list(pieces)
    first = 0
    while first < len(rest):
        written = os.writev(fd, rest[first : first + _BUFFERS_MAX])
        while first < len(rest) and written >= rest[first].nbytes:
            written -= rest[first].nbytes
            first += 1
        if written:
            rest[first] = rest[first][written:]


def map_file(path: Path) -> pa.Buffer:
    """Map a file as one read-only buffer; the mapping lives as long as the buffer."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with pa.memory_map(str(path), "r") as file:
        # Closing releases the descriptor immediately; the buffer keeps the mapping.
        buffer = file.read_buffer()
    if buffer.size != status.st_size:
        raise DataError(
            f"a stored file changed its length: {path.name}",
            detail=f"{status.st_size} bytes by its status, {buffer.size} mapped",
            hint="something other than millpond writes into the store",
        )
    return buffer


def sync(fd: int) -> None:
    """Sync a file to the disk itself: on macOS plain fsync stops at the drive's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        fcntl.fcntl(fd, full)
    else:
        os.fsync(fd)


def _link_new(temp: Path, target: Path) -> bool:
    try:
        os.link(temp, target)
    except FileExistsError as error:
        if target.is_dir():
            raise _both(target) from error
        # A network file system may repeat a link whose reply was lost: then the name is ours.
        return target.exists() and os.path.samefile(temp, target)
    return True


def _both(path: Path) -> InvalidError:
    return InvalidError("a name in a store is a file or a folder, not both", detail=f"both: {path.name!r}")


def _unreadable(name: str, error: OSError) -> StoreError:
    return StoreError(f"cannot read {name or 'the store'}", detail=str(error))


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:  # swept by another process, or it belongs to another user, who will sweep it
        return False
    return True


def _modified_s(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:
        return float("inf")  # deleted since the listing


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, without hidden ones; a missing folder is empty."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
