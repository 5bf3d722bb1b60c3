"""How soon after its commit a row reaches a subscriber: SUBSCRIBE over the PostgreSQL protocol, and SSE.

The commit is the moment at which the manifest of the epoch has its name: the time of its inode.
"""

from __future__ import annotations

import contextlib
import json
import queue
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

TRIES = 40
Seen = tuple[int, float]  # the epoch, and when its row came


@dataclass(frozen=True)
class Freshness:
    how: str
    p50_ms: float
    max_ms: float


def measure(how: str, pond: Path, writer: str, follow: Callable[[queue.Queue[Seen]], None]) -> Freshness:
    """Write rows by one connection, one at a time, and follow them by `follow`, which runs in a thread."""
    seen: queue.Queue[Seen] = queue.Queue()
    threading.Thread(target=follow, args=(seen,), daemon=True).start()
    last, _ = seen.get(timeout=60)  # the rows of the beginning
    took = []
    with psycopg.connect(writer, autocommit=True) as con:
        for number in range(TRIES):
            con.execute("INSERT INTO watched VALUES (%s)", [time.time_ns() + number])
            epoch, came = last, 0.0
            while epoch <= last:
                epoch, came = seen.get(timeout=60)
            last = epoch
            committed = (pond / "manifests" / f"{epoch:016d}").stat().st_ctime_ns / 1e9
            took.append((came - committed) * 1000)
    return Freshness(how, statistics.median(took), max(took))


def subscribing(address: str) -> Callable[[queue.Queue[Seen]], None]:
    def follow(seen: queue.Queue[Seen]) -> None:
        with (
            contextlib.suppress(psycopg.Error),  # the server stops at the end
            psycopg.connect(address, autocommit=True) as con,
        ):
            for row in con.cursor().stream("SUBSCRIBE watched"):
                seen.put((int(row[0]), time.time()))

    return follow


def by_events(url: str) -> Callable[[queue.Queue[Seen]], None]:
    def follow(seen: queue.Queue[Seen]) -> None:
        with urllib.request.urlopen(f"{url}/v1/views/watched/changes", timeout=120) as answer:
            for line in answer:
                if line.startswith(b"data:"):
                    found = json.loads(line[5:])
                    if found.get("rows"):
                        seen.put((int(found["epoch"]), time.time()))

    return follow
