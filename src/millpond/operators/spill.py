"""Where DuckDB puts what does not fit into memory: a folder of this process, never the working directory.

Law: the folder is gone when the process is.  A process that ends removes its own; one that was killed leaves
its folder, and the next process that needs one removes it.  Whoever lives holds a lock on a file in it.
`TMPDIR` says where folders are made.
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
_mine: tuple[int, Path, IO[bytes]] | None = None  # the process that made it, the folder, what is locked


def spill_folder() -> str:
    """A path for one database; it makes the folder when it needs it, and removes it."""
    with _lock:
        return str(_folder() / f"{next(_numbers)}")


def _folder() -> Path:
    global _mine
    if _mine is None or _mine[0] != os.getpid():  # a fork has one of its own
        base = Path(tempfile.gettempdir())
        remove_left(base)
        made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=base))
        file = (made / LOCK).open("wb")
        fcntl.flock(file, fcntl.LOCK_EX)
        made = made.rename(base / made.name[1:])  # others see it once it is locked
        _mine = os.getpid(), made, file
    return _mine[1]


def remove_left(base: Path) -> None:
    """Remove the folders of processes that are gone."""
    for folder in base.glob(f"{PREFIX}*"):
        # Where that fails it is somebody else's, alive, or gone by now.
        with contextlib.suppress(OSError), (folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)


@atexit.register
def _remove_mine() -> None:
    if _mine is not None and _mine[0] == os.getpid():
        shutil.rmtree(_mine[1], ignore_errors=True)
