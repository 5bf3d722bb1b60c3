"""A PostgreSQL server of this machine, as a peer: a private cluster on loopback, gone with the run.

It runs as another user when the benchmark is root, for the server refuses that one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

SETTINGS = {"shared_buffers": "256MB", "max_connections": "200", "jit": "off"}


class NotInstalledError(Exception):
    """Why there is no such peer here."""


@contextlib.contextmanager
def postgres(settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Start a server; its address."""
    tools = _tools()
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="bench-pg-", dir="/tmp"))  # the path of a socket must be short
    port = _free_port()
    try:
        if user is not None:
            shutil.chown(folder, user)
        data = str(folder / "data")
        _run(
            user, tools / "initdb", "-D", data, "-E", "UTF8", "--locale=C.UTF-8", "-A", "trust", "-U", "bench"
        )
        said = {"listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": str(folder)}
        options = " ".join(
            f"-c {name}={value!r}" for name, value in {**SETTINGS, **said, **(settings or {})}.items()
        )
        log = str(folder / "log")
        _run(user, tools / "pg_ctl", "-D", data, "-w", "-l", log, "-o", options, "start")
        try:
            yield f"postgresql://bench@127.0.0.1:{port}/postgres"
        finally:
            _run(user, tools / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(user: str | None, tool: Path, *args: str) -> None:
    quiet = subprocess.DEVNULL  # pg_ctl leaves the server behind, which would keep a pipe open
    done = subprocess.run([str(tool), *args], user=user, cwd="/", stdin=quiet, stdout=quiet, stderr=quiet)
    if done.returncode:
        raise NotInstalledError(f"{tool.name} failed with {done.returncode}")


def _tools() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise NotInstalledError("PostgreSQL is not installed")
    return Path(on_path).resolve().parent


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
