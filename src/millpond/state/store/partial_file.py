"""A large file of a remote store of which only the parts that are read are fetched.

The local copy is a sparse file that all processes of the host share and map.  A part that was not fetched is
a hole in it.  Readers verify what they read (`state/runs/verified_blocks.py` checks each block), so
nothing else records what was fetched: a hole is fetched, and what does not match is fetched once more.

Law 6 makes it safe: every process writes the same bytes to the same place, also two at the same time.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from millpond.state.store.store import ReadsParts, Span, StoreError

PART_BYTES = 8 << 20  # a longer span is fetched in several requests
REQUESTS_AT_ONCE = 32  # of one fetch
GAP_BYTES = 256 << 10  # spans that are this near are fetched by one request: it costs more than these bytes
_PRIVATE = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)


class PartialFile:
    """Maps the sparse copy of one file; thread-safe.

    The mapping is private: where the disk refuses a part, or the copy was evicted, the part is written to the
    memory of this process instead.
    """

    def __init__(self, name: str, store: ReadsParts, path: Path, note: Callable[[int, int], None]) -> None:
        """`note` is called with the requests and the bytes of each fetch."""
        self._name = name
        self._store = store
        self._path = path
        self._note = note
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            self._identity = (status.st_dev, status.st_ino)
            self.size = status.st_size
            self._map = mmap.mmap(fd, self.size, flags=_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(fd)
        self.buffer = pa.py_buffer(self._map)

    def fetch(self, spans: Sequence[Span], again: bool = False) -> None:
        """Fetch the parts of these spans that are absent; all of them with `again`."""
        fd = self._open()
        try:
            if not again:
                spans = [hole for asked_span in spans for hole in self._holes(fd, asked_span)]
            wanted = joined(spans)
            if not wanted:
                return

            def fetch(asked_span: Span) -> int:
                start, stop = asked_span
                body, size = self._store.read_part(self._name, start, stop - start)
                if size != self.size:
                    raise StoreError(
                        f"{self._name} changed while it was read", detail=f"{self.size} bytes, then {size}"
                    )
                self._write(fd, body, start, again)
                return body.nbytes

            if len(wanted) == 1:
                fetched = fetch(wanted[0])
            else:
                with ThreadPoolExecutor(min(REQUESTS_AT_ONCE, len(wanted)), "millpond-part") as pool:
                    fetched = sum(pool.map(fetch, wanted))
        finally:
            if fd is not None:
                os.close(fd)
        self._note(len(wanted), fetched)

    def _open(self) -> int | None:
        """The copy, for writing; None if it was evicted since it was mapped."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) == self._identity:
            return fd
        os.close(fd)
        return None

    def _holes(self, fd: int | None, wanted: Span) -> list[Span]:
        """The parts of a span that nobody has written."""
        start, stop = wanted
        if fd is None:
            return [wanted]
        holes = []
        while start < stop:
            hole = os.lseek(fd, start, os.SEEK_HOLE)
            if hole >= stop:
                break
            try:
                data = min(stop, os.lseek(fd, hole, os.SEEK_DATA))
            except OSError:  # there is no data behind the hole
                data = stop
            holes.append((max(start, hole), data))
            start = data
        return holes

    def _write(self, fd: int | None, body: memoryview, start: int, again: bool) -> None:
        is_cached = fd is not None
        if fd is not None:
            try:
                write_at(fd, body, start)
            except OSError:  # the disk is full
                is_cached = False
        if again or not is_cached:
            self._map[start : start + body.nbytes] = body


def create(path: Path, size: int, parts: Sequence[tuple[int, memoryview]]) -> None:
    """Create the sparse copy of a file with these parts."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.ftruncate(fd, size)
        for start, body in parts:
            write_at(fd, body, start)
    finally:
        os.close(fd)


def write_at(fd: int, body: memoryview, start: int) -> None:
    while body.nbytes:
        written = os.pwrite(fd, body, start)
        body, start = body[written:], start + written


def joined(spans: Sequence[Span]) -> list[Span]:
    """The requests for these spans: near ones are joined, long ones are cut.

    >>> joined([(0, 10), (700_000, 700_010), (20, 30)])
    [(0, 30), (700000, 700010)]
    >>> joined([(0, 9 << 20)])
    [(0, 8388608), (8388608, 9437184)]
    """
    spans_joined: list[Span] = []
    for start, stop in sorted(spans):
        if spans_joined and start - spans_joined[-1][1] <= GAP_BYTES:
            spans_joined[-1] = (spans_joined[-1][0], max(stop, spans_joined[-1][1]))
        else:
            spans_joined.append((start, stop))
    return [
        (at, min(at + PART_BYTES, stop))
        for start, stop in spans_joined
        for at in range(start, stop, PART_BYTES)
    ]
