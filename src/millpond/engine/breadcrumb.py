"""Which step a Spark worker is in, so that somebody can say so when the worker dies.

A worker that calls os._exit, crashes in a C library or is killed cannot report anything.  So before each step
it writes the step's name into the file that Spark shows when a worker crashes, and the driver finds it in the
text of the failed job (`spark.python.worker.faulthandler.enabled`).  What ended the worker stands behind it:
the status given to os._exit, or the stack that Python's faulthandler writes on a fatal signal.

It costs two short writes for each step of a task, and nothing in a process that is no worker.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
from typing import NoReturn

MARK, EXIT = "millpond-step ", "millpond-exit "
FOLDER = "PYTHON_FAULTHANDLER_DIR"  # Spark's: a file for each worker, named by its process id

_file: int | None = None
_exit = os._exit


def enable() -> None:
    """In a worker, before its task: find the file that Spark made for this process."""
    global _file
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    path = os.path.join(folder, str(os.getpid()))
    try:
        if _file is not None and _same(_file, path):
            return
        _file = os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError:  # no file, so no name of a step: never a reason to fail
        _file = None
        return
    faulthandler.enable(_file)  # behind the name of the step, and not over it
    os._exit = _exited


def leave(step: str, epoch: int) -> None:
    if _file is not None:
        _write(f"{MARK}{json.dumps([step, epoch, os.getpid()])}\n".encode())


def clear() -> None:
    if _file is not None:
        _write(b"")


def _write(text: bytes) -> None:
    """In the place of what was there; a full disk costs the name of a step, and nothing else."""
    assert _file is not None
    with contextlib.suppress(OSError):
        os.ftruncate(_file, 0)
        if text:
            os.write(_file, text)


def found(text: str) -> tuple[str, int, int, str] | None:
    """The step, the epoch, the process and what stands behind them, in the text of a failed job."""
    _, mark, rest = text.partition(MARK)
    line, _, more = rest.partition("\n")
    try:
        step, epoch, pid = json.loads(line) if mark else ("", 0, 0)
    except ValueError:
        return None
    return (str(step), int(epoch), int(pid), more) if mark else None


def _exited(status: int) -> NoReturn:
    if _file is not None:
        with contextlib.suppress(OSError):
            os.write(_file, f"{EXIT}{status}\n".encode())
    _exit(status)


def _same(file: int, path: str) -> bool:
    held, there = os.fstat(file), os.stat(path)
    return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)
