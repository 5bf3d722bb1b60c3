"""Frames as files: where all tasks share a folder, large frames do not pass through Spark.

Through Spark a frame is copied seven times (socket, JVM, file, one file of many, JVM, socket), which takes
5 ms of CPU per MiB.  In local mode every worker is on the driver's machine: the sender writes the frame to a
file, sends a *ticket* in its place, and the receiver maps the file.

Law: a frame arrives unchanged or not at all (law 9).  A file is written by one attempt of one task and read
by tickets that name it, so attempts never mix; the digests of the headers prove its content, as for every
frame.  No file outlives its job: the driver deletes the folder.  If the driver is killed, the folder remains
where Spark leaves its shuffle files.
"""

from __future__ import annotations

import mmap
import os
import struct
import uuid
from io import FileIO

from millpond.engine.task.frames import Raw
from millpond.errors import UnavailableError

_MARK = b"millpond ticket\0"
_TICKET = struct.Struct("<16sQQ32s")  # magic, offset and length of the frame, name of the file
_PAGE = mmap.ALLOCATIONGRANULARITY
# Page faults one by one take as long as copying; where the system supports it, all pages are mapped together.
_FLAGS = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


class Shelf:
    """The file into which one attempt of a task writes its frames; created with the first frame."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._name = ""
        self._file: FileIO | None = None
        self._end = 0

    def leave(self, frame: Raw) -> bytes:
        """Write a frame to the file; returns its ticket."""
        offset = self._end
        try:
            if self._file is None:
                self._name = uuid.uuid4().hex
                os.makedirs(self._folder, exist_ok=True)
                self._file = FileIO(os.path.join(self._folder, self._name), "xb")
            self._file.seek(offset)
            rest = memoryview(frame)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise UnavailableError(
                "a frame file could not be written for the next level",
                detail=f"{self._folder}: {error.strerror}",
                hint="spark.local.dir names the folder: it needs room for what an epoch exchanges",
            ) from error
        self._end = -(-(offset + len(frame)) // _PAGE) * _PAGE  # maps start at page boundaries
        return _TICKET.pack(_MARK, offset, len(frame), self._name.encode())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def is_ticket(frame: Raw) -> bool:
    return len(frame) == _TICKET.size and bytes(frame[: len(_MARK)]) == _MARK


def fetch(folder: str, ticket: bytes) -> memoryview:
    """The frame of a ticket, mapped from its file; the memory stays valid when the file is deleted."""
    _, offset, length, name = _TICKET.unpack(ticket)
    try:
        handle = os.open(os.path.join(folder, name.decode()), os.O_RDONLY)
        try:
            return memoryview(mmap.mmap(handle, length, flags=_FLAGS, prot=mmap.PROT_READ, offset=offset))
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:  # a file that is too short raises ValueError
        raise UnavailableError(
            "a frame file for this task is missing",
            detail=f"{length} bytes at {offset}: {error}",
            hint="run the epoch again",
        ) from error
