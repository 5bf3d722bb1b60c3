"""Point reads by prepared statement, with pgbench: one client program for both servers."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

QUERY = "SELECT id, name, n, at, price FROM t WHERE id = :id"


@dataclass(frozen=True)
class PointReads:
    server: str
    load: str
    connections: int
    p50_ms: float
    p99_ms: float
    per_s: float
    cpu_ms: float | None  # of the server, for each read


def measure(address: str, rows: int, connections: int, seconds: float) -> tuple[float, float, float, int]:
    """p50 and p99 in milliseconds, reads a second, and how many there were."""
    program = shutil.which("pgbench")
    if program is None:
        raise RuntimeError("pgbench is not installed (Debian: postgresql-contrib)")
    found = urlparse(address)
    with tempfile.TemporaryDirectory(prefix="pgbench-") as folder:
        script = Path(folder) / "read.sql"
        script.write_text(f"\\set id random(0, {rows - 1})\n{QUERY};\n")
        where = ["-h", str(found.hostname), "-p", str(found.port), "-U", str(found.username)]
        how = [
            "-n",
            "-M",
            "prepared",
            "-c",
            str(connections),
            "-j",
            "1",
            "-T",
            f"{seconds:.0f}",
            "-f",
            str(script),
        ]
        logged = ["--log", f"--log-prefix={folder}/log"]
        done = subprocess.run(
            [program, *where, *how, *logged, found.path[1:]], capture_output=True, text=True, cwd=folder
        )
        if done.returncode:
            raise RuntimeError(f"pgbench failed: {done.stderr[-500:]}")
        lines = [line for log in Path(folder).glob("log.*") for line in log.read_text().splitlines()]
    took = sorted(int(line.split()[2]) / 1000 for line in lines)
    if not took:
        raise RuntimeError("pgbench read nothing")
    return took[len(took) // 2], took[int(len(took) * 0.99)], len(took) / seconds, len(took)
