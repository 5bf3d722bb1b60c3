"""Fetches what a task is about to read into the disk cache of its host, in parallel.

The listing of an epoch names the files before its first row arrives, so the requests overlap with each other
and with the input of the task.  Small files are fetched completely: recent runs that other hosts wrote, of
which a task needs nearly all.  Of a large run it may need a few keys: only its footer and its metadata are
fetched ahead, which say where they are.  Where the tasks of later levels will run on the same host, those of
level 0 fetch for them, too, while they read their input.

Law 4: nothing depends on it.  What could not be fetched ahead is fetched, or fails, when it is read.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from millpond.state.runs import run_names
from millpond.state.store.disk_cache import (
    PREFETCH_THREADS,
    WHOLE_BYTES_MAX,
    CacheCounts,
    DiskCache,
)
from millpond.state.store.store import Store, StoreError

if TYPE_CHECKING:
    from millpond.engine.task.task_run import TaskRun
    from millpond.engine.task.worker import Worker

FILES_MAX = 64
LARGE_FILES_MAX = 256


def prefetch(run: TaskRun, levels: Collection[int]) -> None:
    """Begin to fetch for the tables of these levels, in the hash range of the task."""
    worker = run.worker
    cache = worker.store
    if not isinstance(cache, DiskCache):
        return
    sizes: dict[str, int] = {}
    segments: dict[str, set[int]] = {}
    for step, level in run.levels.level_of.items():
        if level not in levels or step not in run.plan.nodes:
            continue
        for spec in run.plan.nodes[step].binding.tables:
            for ref in run.listing.runs(spec.name):
                if ref.h_min <= run.h_max and ref.h_max >= run.h_min:
                    sizes[ref.file] = sizes.get(ref.file, 0) + ref.bytes
                    segments.setdefault(ref.file, set()).add(ref.segment)
    small = [n for n, size in sizes.items() if size <= WHOLE_BYTES_MAX and not run_names.is_foreign(n)]
    if len(small) > 1:
        cache.prefetch_soon(small[-FILES_MAX:])  # the newest are the likeliest to be missing here
    large = [n for n, size in sizes.items() if size > WHOLE_BYTES_MAX and not worker.has_open(n)]
    if large:
        _open_soon(worker, {name: segments[name] for name in large[-LARGE_FILES_MAX:]})


def _open_soon(worker: Worker, segments: dict[str, set[int]]) -> None:
    """Begin to open these segments."""
    waiting = queue.SimpleQueue[tuple[str, set[int]]]()
    for item in segments.items():
        waiting.put(item)

    def open_all() -> None:
        with suppress(queue.Empty, StoreError):
            while True:
                name, places = waiting.get(block=False)
                file = worker.open_file(name)
                if file.is_partial:
                    for position in sorted(places):
                        file.segment(position)

    for _ in range(min(PREFETCH_THREADS, len(segments))):
        threading.Thread(target=open_all, name="prefetch", daemon=True).start()


def cache_counts(store: Store) -> CacheCounts | None:
    """The counts of this process; None without a disk cache."""
    return store.counts.copy() if isinstance(store, DiskCache) else None


def cache_metrics(store: Store, before: CacheCounts | None) -> dict[str, dict[str, int]]:
    """What the cache did since then, as metrics of a task."""
    now = cache_counts(store)
    if now is None or before is None:
        return {}
    counters = {
        "hits": now.hits - before.hits,
        "misses": now.misses - before.misses,
        "fetched_bytes": now.fetched_bytes - before.fetched_bytes,
        "parts": now.parts - before.parts,
    }
    return {"cache": counters} if any(counters.values()) else {}
