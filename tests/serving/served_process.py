"""Starts `millpond serve` as a process of its own, and ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class ServedPond:
    pond: Path
    urls: list[str]
    process: subprocess.Popen[str]

    def url(self, scheme: str) -> str:
        return next(url for url in self.urls if url.partition(":")[0] == scheme)

    def stop(self) -> tuple[int, str]:
        """End the process as Ctrl-C does; its exit code and what it wrote to stderr."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@contextlib.contextmanager
def served(
    pond: Path, *args: str, listeners: int = 1, env: dict[str, str] | None = None
) -> Iterator[ServedPond]:
    """Serve a pond; the block begins when all listeners have printed their URLs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "millpond", "serve", str(pond), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        yield ServedPond(pond, _lines(process, listeners), process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    found = []
    for _ in range(count):
        line = process.stdout.readline()
        assert line, f"the server ended: {process.communicate()[1]}"
        found.append(line.strip())
    return found
