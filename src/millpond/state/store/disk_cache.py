"""Caches files of a remote store on the local disk.

Names are immutable (law 6), so a copy is valid for ever and nothing is invalidated.  All processes of a host
share the folder: one fetches a file, and the others wait for it.  When the cache is full, the least recently
used copies are deleted.  Deleting a copy that a process has mapped is safe on POSIX.

Of a large file only the parts that are read are fetched (`partial_file.py`); its copy is a sparse file.

    <folder>/<boot>/<xx>/<digest of store and name>   <folder>/<boot>/tmp   <folder>/locks
    <folder>/<boot>/<xx>/<digest of store and name>~  a sparse copy
"""

from __future__ import annotations

import errno
import fcntl
import os
import queue
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import xxhash

from millpond.errors import InvalidError
from millpond.state.store.local_store import map_file, sync, write_buffers
from millpond.state.store.partial_file import PartialFile, create, write_at
from millpond.state.store.store import (
    Data,
    Fetch,
    Names,
    Put,
    ReadsParts,
    Store,
    StoreError,
    Streaming,
    buffers_of,
    check_name,
    with_options,
)

_SCAN_SHARE = 64  # a process scans the folder each time it has added this share of the limit
_TMP_LIFE_S = 60 * 60
SPARSE = "~"  # the end of the name of a sparse copy
PREFETCH_THREADS = 16
PART_BYTES = 8 << 20  # a larger file is fetched in parts
PARTS_AT_ONCE = 8
END_BYTES = 128 << 10  # the first request for a file that may be large: its end says what is in it
WHOLE_BYTES_MAX = 4 << 20  # a smaller file is fetched completely
Write = Callable[[int], None]  # to a file descriptor
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_FULL = (errno.ENOSPC, errno.EDQUOT)
FOLDER_VARIABLE = "MILLPOND_CACHE_DIR"  # an environment variable: the folder for the disk caches of this host


@dataclass
class CacheCounts:
    """The counts of this process; `skipped` are copies that the disk refused, with the last reason."""

    hits: int = 0
    misses: int = 0
    skipped: int = 0
    reason: str | None = None
    fetched_bytes: int = 0  # of the misses, and of parts of large files
    parts: int = 0  # requests for parts of large files

    def copy(self) -> CacheCounts:
        return replace(self)


def folder_of_host(folder: Path) -> Path:
    """The folder of a cache on this host, if another host suggests one: its own setting, or a writable one.

    >>> os.environ[FOLDER_VARIABLE] = "/tmp/doc-cache"
    >>> str(folder_of_host(Path("/home/ann/.cache/millpond/a1b2")))
    '/tmp/doc-cache/a1b2'
    >>> del os.environ[FOLDER_VARIABLE]
    """
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen).expanduser() / folder.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"millpond-cache-{os.getuid()}" / folder.name
    return folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir()) / folder.name


class DiskCache:
    """A Store whose `map` maps a local copy; everything else goes to the store itself.

    The size of the cache stays below `max_bytes`, except for what each process may add between two scans of
    the folder (a 64th of the limit) and for copies that are unlinked while still mapped.
    """

    def __init__(
        self, store: Store, folder: Path, max_bytes: int, through: tuple[str, ...] = ("runs/",)
    ) -> None:
        if max_bytes < 1:
            raise InvalidError("a disk cache needs room", detail=f"max_bytes is {max_bytes}")
        self._store = store
        self._folder = Path(folder).expanduser().absolute()
        self._max_bytes = max_bytes
        self._through = through  # a file that is written is cached too: the next epoch maps it
        # A copy is not synced, so it is trusted only within the boot that wrote it; without
        # a boot id it is synced instead.
        boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
        self._sync_copies = not boot
        self._home = self._folder / (boot or "synced")
        self._locks = self._folder / "locks"
        self._added = max_bytes  # so that the first copy scans what earlier processes left
        self._lock = threading.Lock()
        self.counts = CacheCounts()
        try:
            self._make_folders()
        except OSError as error:
            raise InvalidError(
                f"cannot make the disk cache in {self._folder}",
                detail=str(error),
                hint=f"name a folder that this user may write to, also with {FOLDER_VARIABLE}",
            ) from error

    def _make_folders(self) -> None:
        for made in (self._home / "tmp", self._locks):
            made.mkdir(parents=True, exist_ok=True)

    @property
    def below(self) -> Store:
        return self._store

    @property
    def uri(self) -> str:
        options = {"cache": str(self._folder), "cache_bytes": str(self._max_bytes)}
        return with_options(self._store.uri, options)

    def put_new(self, name: str, data: Data) -> Put:
        pieces = buffers_of(data)
        outcome = self._store.put_new(name, pieces)
        if outcome is Put.WON and name.startswith(self._through):
            self._keep(name, _writes(pieces))
        return outcome

    def get(self, name: str) -> bytes:
        return self._store.get(name)

    def list(self, prefix: str, after: str | None = None) -> Names:
        return self._store.list(prefix, after)

    def size(self, name: str) -> int | None:
        return self._store.size(name)

    def delete(self, name: str) -> None:
        self._store.delete(name)
        for path in (self._path(name), self._sparse(name)):
            with suppress(NotADirectoryError):
                path.unlink(missing_ok=True)

    def map(self, name: str) -> pa.Buffer:
        mapped = self._mapped(name)
        if mapped is None:
            with self._locked(self._digest(name)[:2], wait=True):
                mapped = self._mapped(name)  # another process or thread may have fetched it meanwhile
                if mapped is None:
                    return self._fetch(name)
        self._count(hits=1)
        return mapped

    def map_parts(self, name: str) -> tuple[pa.Buffer, Fetch | None]:
        """The file, and what fetches its parts if it is large: then only its end must be here."""
        store = self._store
        if not (isinstance(store, ReadsParts) and store.reads_parts):
            return self.map(name), None
        mapped = self._mapped(name)
        if mapped is None:
            with self._locked(self._digest(name)[:2], wait=True):
                mapped = self._mapped(name)
                if mapped is None:
                    return self._begin(name, store)
        self._count(hits=1)
        return mapped, None

    def _begin(self, name: str, store: ReadsParts) -> tuple[pa.Buffer, Fetch | None]:
        """Open the sparse copy of a large file, after it was created if need be; fetch a small file."""
        known = self._open_sparse(name, store)
        if known is not None:
            self._count(hits=1)
            return known.buffer, known.fetch
        end, size = store.read_end(name, END_BYTES)
        if size > WHOLE_BYTES_MAX:
            try:
                self._create_sparse(name, end, size)
                known = self._open_sparse(name, store)
            except OSError as error:
                self._count(skipped=1, reason=str(error))
            if known is not None:
                self._count(misses=1, parts=1, fetched_bytes=end.nbytes)
                return known.buffer, known.fetch
        return self._fetch(name, (end, size)), None

    def _open_sparse(self, name: str, store: ReadsParts) -> PartialFile | None:
        path = self._sparse(name)
        try:
            file = PartialFile(name, store, path, self._fetched_parts)
            os.utime(path)
        except (FileNotFoundError, NotADirectoryError):  # evicted, perhaps since it was created
            return None
        return file

    def _create_sparse(self, name: str, end: memoryview, size: int) -> None:
        temp = self._temp()
        try:
            create(temp, size, [(size - end.nbytes, end)])
            self._sparse(name).parent.mkdir(exist_ok=True)
            os.replace(temp, self._sparse(name))
        except BaseException:
            with suppress(NotADirectoryError):
                temp.unlink(missing_ok=True)
            raise

    def _fetched_parts(self, requests: int, size: int) -> None:
        self._count(parts=requests, fetched_bytes=size)
        self._grew(size)

    def prefetch(self, names: Iterable[str], parallel: int = 8) -> None:
        """Fetch the files that are not cached yet, in parallel; returns when all are cached."""
        absent = [name for name in dict.fromkeys(names) if not self._path(name).exists()]
        if not absent:
            return
        with ThreadPoolExecutor(min(parallel, len(absent)), "prefetch") as pool:
            for _ in pool.map(self.map, absent):
                pass

    def prefetch_soon(self, names: Iterable[str]) -> None:
        """Begin to fetch the files that are not cached yet, and return; a failure is left to the reader."""
        absent = queue.SimpleQueue[str]()
        for name in names:
            if not self._path(name).exists():
                absent.put(name)
        for _ in range(min(PREFETCH_THREADS, absent.qsize())):
            # A daemon, so that a process can end while a bucket does not answer.
            threading.Thread(target=self._fetch_all, args=(absent,), name="prefetch", daemon=True).start()

    def _fetch_all(self, absent: queue.SimpleQueue[str]) -> None:
        with suppress(queue.Empty, StoreError):
            while True:
                self.map(absent.get(block=False))

    def _mapped(self, name: str) -> pa.Buffer | None:
        path = self._path(name)
        now = time.time_ns()
        try:
            buffer = map_file(path)
            with suppress(FileNotFoundError):  # evicted meanwhile; the mapping stays valid
                os.utime(path, ns=(now, now))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(
                f"cannot read the cached copy of {name}",
                detail=str(error),
                hint=f"{self._folder} must belong to this user; it may be emptied at any time",
            ) from error
        return buffer

    def _fetch(self, name: str, end: tuple[memoryview, int] | None = None) -> pa.Buffer:
        """Fetch a file, of which the end and the size may be known."""
        self._count(misses=1)
        store = self._store
        if isinstance(store, ReadsParts) and store.reads_parts:
            cached = self._keep(name, lambda fd: _write_parts(fd, name, store, end))
        elif isinstance(store, Streaming):
            cached = self._keep(name, _writes(store.chunks(name)))
        else:
            cached = self._keep(name, _writes(buffers_of(store.map(name))))
        mapped = self._store.map(name) if cached is None else cached
        self._count(fetched_bytes=mapped.size)
        return mapped

    def _keep(self, name: str, write: Write) -> pa.Buffer | None:
        """Cache a copy and map it; None, and counted, if the disk refuses it.

        The copy is optional: if it fails, the reader still gets its bytes, and a writer still learns that its
        put has won.
        """
        try:
            return self._copy(name, write)
        except OSError as error:
            self._count(skipped=1, reason=str(error))
            return None

    def _copy(self, name: str, write: Write) -> pa.Buffer:
        path = self._path(name)
        temp = self._temp()
        try:
            # mapped before it is renamed: after that, any process may evict it
            buffer = self._write(temp, write)
            path.parent.mkdir(exist_ok=True)
            os.replace(temp, path)
        except OSError as error:
            with suppress(NotADirectoryError):
                temp.unlink(missing_ok=True)
            if error.errno in _FULL:
                self._evict(disk_full=True)
            raise
        except BaseException:
            temp.unlink(missing_ok=True)
            raise
        self._grew(buffer.size)
        return buffer

    def _temp(self) -> Path:
        """The path of a new temporary file."""
        temp = self._home / "tmp" / f"{os.getpid()}-{secrets.token_hex(8)}"
        if not temp.parent.is_dir():  # somebody deleted the cache while it was in use
            self._make_folders()
        return temp

    def _grew(self, size: int) -> None:
        """Account for bytes that were added, and evict copies when it is time to look."""
        with self._lock:
            self._added += size
            due = self._added >= max(1, self._max_bytes // _SCAN_SHARE)
        if due:
            self._evict()

    def _write(self, temp: Path, write: Write) -> pa.Buffer:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            write(fd)
            if self._sync_copies:
                sync(fd)
        finally:
            os.close(fd)
        now = time.time_ns()
        os.utime(temp, ns=(now, now))
        return map_file(temp)

    def _evict(self, disk_full: bool = False) -> None:
        """Unlink the least recently used copies when they exceed the limit or the disk is full."""
        with self._locked("evict", wait=False) as mine:
            if not mine:
                return  # another process evicts; our count stays, so the next copy tries again
            with self._lock:
                self._added = 0
            copies = sorted(self._copies())
            total = sum(size for _, size, _ in copies)
            goal = total
            if total > self._max_bytes:
                # leave some room, so that not every scan deletes
                goal = self._max_bytes - self._max_bytes // 10
            if disk_full:
                goal = min(goal, total // 2)
            for _, size, path in copies:
                if total <= goal:
                    return
                Path(path).unlink(missing_ok=True)
                total -= size

    def _copies(self) -> Iterator[tuple[int, int, str]]:
        """(last use, bytes, path) of all copies, also of earlier boots; new temporary files are excluded."""
        for boot in _folders(self._folder):
            if boot == str(self._locks):
                continue
            for folder in _folders(boot):
                busy_after = (time.time() - _TMP_LIFE_S) * 1e9 if folder.endswith("/tmp") else float("inf")
                with _scanned(folder) as entries:
                    for entry in entries:
                        try:
                            status = entry.stat()
                        except FileNotFoundError:
                            continue  # deleted or renamed since the listing
                        if status.st_mtime_ns < busy_after:
                            size = status.st_size
                            if entry.name.endswith(SPARSE):
                                size = min(size, status.st_blocks * 512)
                            yield status.st_mtime_ns, size, entry.path

    @contextmanager
    def _locked(self, name: str, wait: bool) -> Iterator[bool]:
        """An advisory lock of this host; without it, two processes may fetch a file twice: that is all."""
        try:
            lock = _locked(self._locks / name, wait)
            mine = lock.__enter__()
        except OSError:
            try:
                self._make_folders()
                lock = _locked(self._locks / name, wait)
                mine = lock.__enter__()
            except OSError as error:
                self._count(skipped=1, reason=str(error))
                yield True
                return
        try:
            yield mine
        finally:
            lock.__exit__(None, None, None)

    def _digest(self, name: str) -> str:
        return xxhash.xxh3_128_hexdigest(f"{self._store.uri}\0{check_name(name)}".encode())

    def _path(self, name: str) -> Path:
        digest = self._digest(name)
        return self._home / digest[:2] / digest[2:]

    def _sparse(self, name: str) -> Path:
        path = self._path(name)
        return path.with_name(path.name + SPARSE)

    def _count(
        self,
        hits: int = 0,
        misses: int = 0,
        skipped: int = 0,
        reason: str | None = None,
        fetched_bytes: int = 0,
        parts: int = 0,
    ) -> None:
        with self._lock:
            self.counts.parts += parts
            self.counts.fetched_bytes += fetched_bytes
            self.counts.hits += hits
            self.counts.misses += misses
            self.counts.skipped += skipped
            self.counts.reason = reason or self.counts.reason


def _writes(pieces: Iterable[memoryview]) -> Write:
    """Write pieces one after the other."""

    def write(fd: int) -> None:
        for buffer in pieces:
            write_buffers(fd, [buffer])

    return write


def _write_parts(fd: int, name: str, store: ReadsParts, end: tuple[memoryview, int] | None = None) -> None:
    """Fetch a file in parts: the first, or its end, says how large it is; the others come together."""
    if end is None:
        known, size = store.read_part(name, 0, PART_BYTES)
        write_at(fd, known, 0)
        spans = [(at, size) for at in range(PART_BYTES, size, PART_BYTES)]
    else:
        known, size = end
        write_at(fd, known, size - known.nbytes)
        spans = [(at, size - known.nbytes) for at in range(0, size - known.nbytes, PART_BYTES)]

    def fetch(missing: tuple[int, int]) -> None:
        start, stop = missing
        body, total = store.read_part(name, start, min(PART_BYTES, stop - start))
        if total != size:
            raise StoreError(f"{name} changed while it was read", detail=f"{size} bytes, then {total}")
        write_at(fd, body, start)

    if spans:
        with ThreadPoolExecutor(min(PARTS_AT_ONCE, len(spans)), "millpond-part") as pool:
            for _ in pool.map(fetch, spans):
                pass


def _folders(path: Path | str) -> Sequence[str]:
    with _scanned(path) as entries:
        return [entry.path for entry in entries if entry.is_dir()]


@contextmanager
def _scanned(path: Path | str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries of a folder; none if somebody deleted it."""
    try:
        entries = os.scandir(path)
    except (FileNotFoundError, NotADirectoryError):
        yield iter(())
        return
    with entries:
        yield entries


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[bool]:
    """An advisory lock between threads and processes; it is released when its holder dies."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        mine = True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            mine = False
        yield mine
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # unlocked explicitly: a forked child may also hold the descriptor
        os.close(fd)
