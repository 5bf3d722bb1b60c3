"""What a soak looks at once a minute: memory by role, disk by folder, epochs since the last look.

Law: a look reads /proc and folders and changes nothing. Memory is anonymous (RssAnon): mapped files belong to
the page cache and go when others need it. What lived in the JVM's heap when it was last collected tells a
leak from a heap that takes the room it has; its old part is seldom collected, so this moves in steps. Epoch
times are from the moment input was admitted until the commit had returned.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.latency.age import ranked
from benchmarks.measure import tree


@dataclass(frozen=True)
class Epoch:
    at: float
    ms: float
    rows: int


@dataclass(frozen=True)
class Look:
    at: float  # seconds since the start
    driver_bytes: int
    jvm_bytes: int
    live_bytes: int  # of the JVM's heap, when it was last collected
    workers_bytes: int
    disk_bytes: int  # the pond
    late_bytes: int  # of it: runs of rows that came too late, which are kept
    spark_bytes: int  # Spark's own folder
    floor: int  # the oldest epoch that is kept
    runs: int  # that are live
    files: int  # in the pond
    epochs: int  # since the last look
    rows: int
    epoch_p50_ms: float
    epoch_p99_ms: float
    backlog_rows: int
    handles: int  # open files of the driver
    cpu_seconds: float  # of the process tree, since it began


def role(root: int, pid: int, command: str) -> str:
    """
    >>> role(1, 1, "python"), role(1, 2, "java"), role(1, 3, "python3.11")
    ('driver', 'jvm', 'workers')
    """
    if pid == root:
        return "driver"
    return "jvm" if command.strip() == "java" else "workers"


def memory(root: int) -> tuple[dict[str, int], float]:
    """Anonymous bytes by role, and the processor seconds of the tree."""
    found = {"driver": 0, "jvm": 0, "workers": 0}
    processes = tree(root)
    for pid in processes:
        try:
            command = Path("/proc", str(pid), "comm").read_text()
            status = Path("/proc", str(pid), "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended since: holds no memory
        for line in status.splitlines():
            if line.startswith("RssAnon:"):
                found[role(root, pid, command)] += int(line.split()[1]) * 1024
    return found, sum(processes.values())


def live_heap(jvm: Any) -> int:
    """Bytes of the heap that were alive when each part of it was last collected."""
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    usages = [pool.getCollectionUsage() for pool in pools if pool.getType().toString() == "Heap memory"]
    return sum(usage.getUsed() for usage in usages if usage is not None)


def disk(folder: Path) -> tuple[int, int]:
    """Bytes and files; what goes while it is looked at is not there."""
    size = files = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.stat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
            files += 1
    return size, files


def times(epochs: Iterable[Epoch]) -> tuple[int, int, float, float]:
    """How many, with how many rows, p50 and p99 of milliseconds."""
    found: Sequence[Epoch] = list(epochs)
    ms = [one.ms for one in found]
    return len(found), sum(one.rows for one in found), ranked(ms, 0.5) or 0.0, ranked(ms, 0.99) or 0.0
