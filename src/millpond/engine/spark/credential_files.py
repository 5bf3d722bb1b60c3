"""Distributes the credentials of a store to the workers of a Spark session, in a file.

Spark serves added files from the driver to every executor, also to one that starts later.  The payload of a
task only has the file's name.  Only the owner can read the file on the driver; a worker does the same to its
copy before it reads it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from millpond.state.store import shared_credentials

_PREFIX = "millpond-credentials-"


def share(context: Any, name: str) -> None:
    """Make the values behind a reference known to all workers of a session."""
    path = Path(context._temp_dir, _PREFIX + name)
    if path.exists():
        return
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(shared_credentials.encoded(name))
    context.addFile(str(path))


def read(name: str) -> bytes | None:
    """In a worker: the values behind a reference; None if the session has no such file."""
    from pyspark import SparkFiles

    root = SparkFiles._root_directory if SparkFiles._is_running_on_worker else None
    if root is None:
        return None
    path = Path(root, _PREFIX + name)
    try:
        path.chmod(0o600)
        return path.read_bytes()
    except FileNotFoundError:
        return None
