"""The processes that are measured: `millpond serve`, and what they use of the machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ServedPond:
    process: subprocess.Popen[str]
    pg: str
    http: str
    flight: str

    def cpu_s(self) -> float:
        """What the server and the processes that it has started have used."""
        return sum(_cpu_s(pid) for pid in self._pids())

    def rss_mb(self) -> float:
        return sum(_rss_mb(pid) for pid in self._pids())

    def _pids(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
        return [self.process.pid, *children]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise LookupError("VmRSS")


@contextlib.contextmanager
def served(pond: Path, processes: int = 0) -> Iterator[ServedPond]:
    """Serve a pond by all protocols, in a process of its own and more for PostgreSQL clients."""
    ports = [
        "--pg",
        "0",
        "--http",
        "0",
        "--flight",
        "0",
        "--connections",
        "2000",
        "--processes",
        str(processes),
    ]
    command = [sys.executable, "-m", "millpond", "serve", str(pond), *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            urls = [process.stdout.readline().strip() for _ in range(3)]
            if not all(urls):
                raise RuntimeError("millpond serve has ended")
            by = {url.partition(":")[0]: url for url in urls}
            pg = by["postgresql"].replace("//", "//bench@")
            yield ServedPond(process, pg, by["http"], by["grpc"])
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
