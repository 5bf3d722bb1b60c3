"""Frames that stay on the machine: where all tasks see one folder, large frames are files.

Through Spark a frame is copied seven times (socket, JVM, file, one file of many, JVM, socket), which takes
5 ms of CPU a MiB.  In local mode every worker is on the driver's machine: the sender writes the frame, a
*ticket* goes the way of frames, and the receiver maps what was written.

Law: a frame arrives as it was sent or not at all (law 9).  A file is written by one attempt of one task and
read by tickets that name it, so attempts never mix; what is in it is proved by the digests of the headers, as
for every frame.  Nothing here outlives its job: the driver takes the folder away, and with a driver that was
killed it is left where Spark leaves its shuffle files.
"""

from __future__ import annotations

import mmap
import os
import struct
import uuid
from io import FileIO

from millpond.engine.frames import Raw
from millpond.errors import UnavailableError

FRAME_BYTES_MIN = 64 << 10  # smaller ones go through Spark: a file costs as much as 20 KiB do there

_MARK = b"millpond ticket\0"
_TICKET = struct.Struct("<16sQQ32s")  # mark, place and length of the frame, name of the file
_PAGE = mmap.ALLOCATIONGRANULARITY
# Faulting in page by page takes as long as copying; where the system can, all of them come at once.
_FLAGS = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


class Shelf:
    """Where one attempt of a task leaves its frames: a file, made for the first of them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._name = ""
        self._file: FileIO | None = None
        self._end = 0

    def leave(self, frame: Raw) -> bytes:
        """Write a frame down; the ticket for it."""
        place = self._end
        try:
            if self._file is None:
                self._name = uuid.uuid4().hex
                os.makedirs(self._folder, exist_ok=True)
                self._file = FileIO(os.path.join(self._folder, self._name), "xb")
            self._file.seek(place)
            rest = memoryview(frame)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise UnavailableError(
                "a frame could not be left for the next level",
                detail=f"{self._folder}: {error.strerror}",
                hint="spark.local.dir names the folder: it needs room for what an epoch exchanges",
            ) from error
        self._end = -(-(place + len(frame)) // _PAGE) * _PAGE  # maps begin at pages
        return _TICKET.pack(_MARK, place, len(frame), self._name.encode())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def is_ticket(frame: Raw) -> bool:
    return len(frame) == _TICKET.size and bytes(frame[: len(_MARK)]) == _MARK


def fetch(folder: str, ticket: bytes) -> memoryview:
    """The frame that was left for this ticket; its memory is the file's, and stays when the file goes."""
    _, place, length, name = _TICKET.unpack(ticket)
    try:
        handle = os.open(os.path.join(folder, name.decode()), os.O_RDONLY)
        try:
            return memoryview(mmap.mmap(handle, length, flags=_FLAGS, prot=mmap.PROT_READ, offset=place))
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:  # a file that is too short is a ValueError
        raise UnavailableError(
            "a frame that was left for this task is not there",
            detail=f"{length} bytes at {place}: {error}",
            hint="run the epoch again",
        ) from error
