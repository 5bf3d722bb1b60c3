"""What idle connections cost: clients that have logged in and ask nothing."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import time
from dataclasses import dataclass
from urllib.parse import urlparse

from benchmarks.serving.servers import ServedPond


@dataclass(frozen=True)
class IdleConnections:
    connections: int
    before_mb: float
    more_mb: float
    login_ms: float  # the mean, one after the other


def allow_files(count: int) -> None:
    """Let this process and those that it starts open as many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard > 0 else count, hard))


def measure(server: ServedPond, count: int) -> IdleConnections:
    found = urlparse(server.pg)
    before = server.rss_mb()
    with contextlib.ExitStack() as all_open:
        started = time.perf_counter()
        for _ in range(count):
            all_open.enter_context(_logged_in(str(found.hostname), int(found.port or 0)))
        took = (time.perf_counter() - started) * 1000 / count
        return IdleConnections(count, before, server.rss_mb() - before, took)


def _logged_in(host: str, port: int) -> socket.socket:
    made = socket.create_connection((host, port), timeout=60)
    body = struct.pack("!i", 3 << 16) + b"user\0bench\0database\0pond\0\0"
    made.sendall(struct.pack("!i", len(body) + 4) + body)
    data = b""
    while not data.endswith(b"Z\0\0\0\x05I"):
        part = made.recv(65536)
        if not part:
            raise RuntimeError("the server closed a connection")
        data += part
    return made
