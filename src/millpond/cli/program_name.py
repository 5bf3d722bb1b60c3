"""Finds the command by which a user can call this program again, for messages that are copied."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable


def program(
    started_as: str | None = None,
    which: Callable[[str], str | None] = shutil.which,
    folder: str | None = None,
) -> str:
    """`millpond` if the shell finds this program by that name; otherwise a path, or `python -m millpond`.

    >>> program("/opt/millpond/.venv/bin/millpond", lambda name: None, "/opt/millpond")
    '.venv/bin/millpond'
    >>> program("/usr/bin/millpond", lambda name: "/usr/bin/millpond", "/opt/millpond")
    'millpond'
    """
    path = os.path.abspath(sys.argv[0] if started_as is None else started_as)
    if os.path.basename(path) != "millpond":
        return f"{shlex.quote(sys.executable)} -m millpond"
    found = which("millpond")
    if found is not None and os.path.realpath(found) == os.path.realpath(path):
        return "millpond"
    here = os.getcwd() if folder is None else folder
    inside = path.startswith(here.rstrip(os.sep) + os.sep)
    return shlex.quote(os.path.relpath(path, here) if inside else path)
