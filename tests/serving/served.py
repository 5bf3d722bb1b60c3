"""A `millpond serve` process for the tests of one module."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse


class ServedPond:
    def __init__(self, process: subprocess.Popen[str], urls: list[str]) -> None:
        self.process = process
        self.urls = urls
        found = urlparse(urls[0])
        self.host, self.port = str(found.hostname), int(found.port or 0)

    def address(self, user: str = "ann") -> str:
        return f"postgresql://{user}@{self.host}:{self.port}/pond"

    def environment(self, user: str = "ann") -> dict[str, str]:
        return {
            **os.environ,
            "PGHOST": self.host,
            "PGPORT": str(self.port),
            "PGUSER": user,
            "PGDATABASE": "pond",
            "PGCONNECT_TIMEOUT": "30",
        }


@contextlib.contextmanager
def served(pond: Path, *options: str) -> Iterator[ServedPond]:
    """Serve a pond by another process until the block ends."""
    command = [sys.executable, "-m", "millpond", "serve", str(pond), "--pg", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline().strip()
            if not line.startswith("postgresql://"):
                process.kill()
                raise AssertionError(line + process.stderr.read())
            yield ServedPond(process, [line])
        finally:
            process.terminate()
            process.wait(30)
