"""Records how Spark workers ended: written by the daemon that forked them, read by a local driver."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

FOLDER = "MILLPOND_WORKER_ENDS"  # an environment variable of the daemon
WAIT_S = 2.0  # the driver may learn of a death before the daemon does
CRASHES = tuple(-int(getattr(signal, name)) for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"))


def reap(number: int, frame: FrameType | None) -> None:
    """The daemon's SIGCHLD handler: records children that did not end with exit(0)."""
    folder = os.environ.get(FOLDER)
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if status and folder is not None and os.path.isdir(folder):
            temporary = os.path.join(folder, f".{pid}")
            with open(temporary, "w") as out:
                out.write(str(os.waitstatus_to_exitcode(status)))
            os.replace(temporary, os.path.join(folder, str(pid)))


def read(folder: str, pid: int) -> int | None:
    """The exit status of a worker, negative for a signal; None if none was recorded."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            with open(os.path.join(folder, str(pid))) as noted:
                return int(noted.read())
        except FileNotFoundError:
            if time.monotonic() > until:
                return None
            time.sleep(0.01)


def exit_text(code: int) -> str:
    """
    >>> exit_text(3), exit_text(-9)
    ('exit status 3', 'killed by SIGKILL')
    """
    return f"exit status {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
