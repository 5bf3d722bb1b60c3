"""The live runs of one epoch, by table and bucket.

Pages are immutable, so one cache of decoded pages serves every epoch of a
process; a listing itself is built once per manifest.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from millpond.errors import DataError
from millpond.state.manifest.manifest import Manifest, Page, RunId, decode_page, run_id
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.parallel_requests import in_parallel
from millpond.state.store.store import Store

PAGES_SPARE = 16  # decoded pages that are cached besides those that the last epoch needed


class PageCache:
    """An LRU cache of decoded pages by name; safe for any number of threads.

    Epochs replace pages, and a page has hundreds of runs.  So the size of the cache follows what one epoch
    needs, not how many pages there were.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages: OrderedDict[str, tuple[RunRef, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, name: str) -> tuple[RunRef, ...]:
        with self._lock:
            refs = self._pages.get(name)
            if refs is not None:
                self._pages.move_to_end(name)
                return refs
        refs = decode_page(self._store.get(name), name=name)
        with self._lock:
            self._pages[name] = refs
        return refs

    def read_all(self, names: Sequence[str]) -> list[tuple[RunRef, ...]]:
        """Several pages; those that are not known are fetched at the same time."""
        with self._lock:
            missing = [name for name in names if name not in self._pages]
        fetched = dict(zip(missing, in_parallel(self.read, missing), strict=True))
        return [fetched[name] if name in fetched else self.read(name) for name in names]

    def trim(self, needed: int) -> None:
        """Drop most pages except those read last; the argument is the number of pages that an epoch needs."""
        with self._lock:
            while len(self._pages) > PAGES_SPARE + 2 * needed:
                self._pages.popitem(last=False)


class Listing:
    """Which runs make up each table, at one epoch."""

    def __init__(self, runs: Iterable[RunRef]) -> None:
        self._by_table: dict[str, list[RunRef]] = {}
        self._count = 0
        for ref in runs:
            self._count += 1
            self._by_table.setdefault(ref.table, []).append(ref)

    @staticmethod
    def of(manifest: Manifest, pages: PageCache) -> Listing:
        return Listing(live_runs(manifest.pages, manifest.recent, manifest.gone, pages))

    def __len__(self) -> int:
        return self._count

    def files(self) -> set[str]:
        return {r.file for runs in self._by_table.values() for r in runs}

    def tables(self) -> list[str]:
        return sorted(self._by_table)

    def runs(self, table: str) -> list[RunRef]:
        return self._by_table.get(table, [])

    def all(self) -> list[RunRef]:
        return [r for name in self.tables() for r in self._by_table[name]]

    def earliest_bucket(self, table: str) -> int | None:
        buckets = [r.bucket for r in self.runs(table) if r.bucket is not None]
        return min(buckets) if buckets else None


def live_runs(
    pages: Sequence[Page], recent: Sequence[RunRef], gone: Sequence[RunId], cache: PageCache
) -> list[RunRef]:
    dead = set(gone)
    runs: list[RunRef] = []
    for page, refs in zip(pages, cache.read_all([page.name for page in pages]), strict=True):
        checked = _checked(page, refs)
        runs.extend((r for r in checked if run_id(r) not in dead) if dead else checked)
    cache.trim(len(pages))
    runs.extend(recent)
    return runs


def _checked(page: Page, refs: tuple[RunRef, ...]) -> tuple[RunRef, ...]:
    if len(refs) != page.runs:
        raise DataError(
            f"{page.name} is not the page that was written",
            detail=f"{len(refs)} runs, the manifest says {page.runs}",
            hint="the file was copied or renamed: restore it from a backup",
        )
    return refs
