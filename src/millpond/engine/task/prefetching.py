"""Fetches files that a task is about to read into the disk cache of its host, in parallel.

The listing of an epoch names them before its first row arrives, so the requests overlap with each other and
with the input of the task.  Only small files are fetched ahead: recent runs that other hosts wrote, of which
a task needs nearly all.  Of a large run it may need a few keys; it is fetched when it is read.

Law 4: nothing depends on it.  A file that could not be fetched ahead is fetched, or fails, when it is read.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from millpond.state.runs import run_names
from millpond.state.store.disk_cache import CacheCounts, DiskCache
from millpond.state.store.store import Store

if TYPE_CHECKING:
    from millpond.engine.task.task_run import TaskRun

FILE_BYTES_MAX = 4 << 20
FILES_MAX = 64


def prefetch(run: TaskRun, levels: Collection[int]) -> None:
    """Begin to fetch the small files of the tables of these levels, in the hash range of the task."""
    cache = run.worker.store
    if not isinstance(cache, DiskCache):
        return
    names: dict[str, int] = {}
    for step, level in run.levels.level_of.items():
        if level not in levels or step not in run.plan.nodes:
            continue
        for spec in run.plan.nodes[step].binding.tables:
            for ref in run.listing.runs(spec.name):
                if ref.h_min <= run.h_max and ref.h_max >= run.h_min:
                    names[ref.file] = names.get(ref.file, 0) + ref.bytes
    small = [n for n, size in names.items() if size <= FILE_BYTES_MAX and not run_names.is_foreign(n)]
    if len(small) > 1:
        cache.prefetch_soon(small[-FILES_MAX:])  # the newest are the likeliest to be missing here


def cache_counts(store: Store) -> CacheCounts | None:
    """The counts of this process; None without a disk cache."""
    return store.counts.copy() if isinstance(store, DiskCache) else None


def cache_metrics(store: Store, before: CacheCounts | None) -> dict[str, dict[str, int]]:
    """What the cache did since then, as metrics of a task."""
    now = cache_counts(store)
    if now is None or before is None:
        return {}
    found = {
        "hits": now.hits - before.hits,
        "misses": now.misses - before.misses,
        "fetched_bytes": now.fetched_bytes - before.fetched_bytes,
    }
    return {"cache": found} if any(found.values()) else {}
