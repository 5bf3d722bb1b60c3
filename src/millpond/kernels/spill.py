"""The folder to which DuckDB spills: one per process, never the working directory.

Law: the folder is removed when the process ends.  A process that exits removes its own; one that was killed
leaves its folder, and the next process that needs one removes it.  A live process holds a lock on a file in
its folder.  `TMPDIR` says where folders are created.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import IO

PREFIX = "millpond-spill-"
LOCK = "lock"

_lock = threading.Lock()
_numbers = itertools.count()
_mine: tuple[int, Path, IO[bytes]] | None = None  # (process that created it, folder, locked file)


def spill_folder() -> str:
    """A path for one database, which creates the folder when needed and removes it."""
    with _lock:
        return str(_folder() / f"{next(_numbers)}")


def _folder() -> Path:
    global _mine
    if _mine is None or _mine[0] != os.getpid():  # a forked process has its own
        base = Path(tempfile.gettempdir())
        remove_left(base)
        made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=base))
        file = (made / LOCK).open("wb")
        fcntl.flock(file, fcntl.LOCK_EX)
        made = made.rename(base / made.name[1:])  # other processes see it only after it is locked
        _mine = os.getpid(), made, file
    return _mine[1]


def remove_left(base: Path) -> None:
    """Remove the folders of dead processes."""
    for folder in base.glob(f"{PREFIX}*"):
        # On failure the folder belongs to another user or a live process, or is already gone.
        with contextlib.suppress(OSError), (folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)


@atexit.register
def _remove_mine() -> None:
    if _mine is not None and _mine[0] == os.getpid():
        shutil.rmtree(_mine[1], ignore_errors=True)
