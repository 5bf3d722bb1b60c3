"""Records which step a Spark worker runs, so that the driver can name it when the worker dies.

A worker that calls os._exit, crashes in a C library or is killed cannot report anything.  So before each step
it writes the step's name into the file that Spark shows when a worker crashes, and the driver finds it in the
text of the failed job (`spark.python.worker.faulthandler.enabled`).  The cause follows the name: the status
passed to os._exit, or the stack that Python's faulthandler writes on a fatal signal.

It costs two short writes for each step of a task, and nothing in a process that is not a worker.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
from typing import NoReturn

MARK, EXIT = "millpond-step ", "millpond-exit "
FOLDER = "PYTHON_FAULTHANDLER_DIR"  # set by Spark: a folder with a file for each worker, named by process id

_file: int | None = None
_exit = os._exit


def enable() -> None:
    """Open the file that Spark made for this worker process; called before its task."""
    global _file
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    path = os.path.join(folder, str(os.getpid()))
    try:
        if _file is not None and _same(_file, path):
            return
        _file = os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError:  # without the file the step is not named, but nothing fails
        _file = None
        return
    faulthandler.enable(_file)  # appends after the name of the step
    os._exit = _exited


def leave(step: str, epoch: int) -> None:
    if _file is not None:
        _write(f"{MARK}{json.dumps([step, epoch, os.getpid()])}\n".encode())


def clear() -> None:
    if _file is not None:
        _write(b"")


def _write(text: bytes) -> None:
    """Replace the content of the file; on a full disk only the name of the step is lost."""
    assert _file is not None
    with contextlib.suppress(OSError):
        os.ftruncate(_file, 0)
        if text:
            os.write(_file, text)


def found(text: str) -> tuple[str, int, int, str] | None:
    """Parse the step, the epoch, the process id and the text after them from the text of a failed job."""
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
    opened, there = os.fstat(file), os.stat(path)
    return (opened.st_dev, opened.st_ino) == (there.st_dev, there.st_ino)
