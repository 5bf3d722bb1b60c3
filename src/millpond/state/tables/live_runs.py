"""Tracks the live runs of the head; each commit applies its changes.

Law 5, for the coordinator: an epoch visits only the buckets that it changed, however many runs there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

from millpond.state.manifest.manifest import RunId, run_id
from millpond.state.retention import is_log
from millpond.state.runs.run_ref import RunRef

TableBucket = tuple[str, int | None]  # table, bucket


class LiveRuns:
    """
    >>> runs = LiveRuns()
    >>> len(runs)
    0
    """

    def __init__(self, refs: Iterable[RunRef] = ()) -> None:
        self._refs: dict[RunId, RunRef] = {}
        self._buckets: dict[str, dict[int | None, dict[RunId, RunRef]]] = {}
        self._heaps: dict[
            str, list[int]
        ] = {}  # heaps of buckets by time, of tables whose `earliest` was called
        self.touched: set[TableBucket] = set()  # since the caller last cleared it
        self.waiting = 0  # rows in buckets that a watermark can close
        self.change(refs, ())

    def __contains__(self, ident: RunId) -> bool:
        return ident in self._refs

    def __iter__(self) -> Iterator[RunId]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)

    def values(self) -> Iterable[RunRef]:
        return self._refs.values()

    def at(self, bucket: TableBucket) -> list[RunRef]:
        return list(self._buckets.get(bucket[0], {}).get(bucket[1], {}).values())

    def table_buckets(self) -> list[TableBucket]:
        return [(table, bucket) for table, buckets in self._buckets.items() for bucket in buckets]

    def below(self, table: str, bucket: int) -> list[RunId]:
        """The runs of a table in buckets before this one."""
        buckets = self._buckets.get(table, {})
        return [i for b, runs in buckets.items() if b is not None and b < bucket for i in runs]

    def runs_below(self, drops: Mapping[str, int]) -> tuple[RunId, ...]:
        """The runs that are dropped if these tables drop their buckets below these."""
        return tuple(i for table, bucket in drops.items() for i in self.below(table, bucket))

    def earliest(self, table: str) -> int | None:
        """The earliest bucket of a table, if it has any.

        Called at every poll, so it must not visit every bucket: it maintains a heap, and removes a dropped
        bucket only when it reaches the top.
        """
        buckets = self._buckets.get(table, {})
        heap = self._heaps.get(table)
        if heap is None or len(heap) > 2 * len(buckets) + 16:
            heap = self._heaps[table] = [b for b in buckets if b is not None]
            heapq.heapify(heap)
        while heap and heap[0] not in buckets:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def rows_by_bucket(self, table: str) -> dict[int | None, int]:
        buckets = self._buckets.get(table, {})
        return {bucket: sum(r.rows for r in runs.values()) for bucket, runs in buckets.items()}

    def change(self, added: Iterable[RunRef], removed: Iterable[RunId]) -> None:
        for ident in removed:
            ref = self._refs.pop(ident, None)
            if ref is None:
                continue
            buckets = self._buckets[ref.table]
            if _waits(ref):
                self.waiting -= ref.rows
            del buckets[ref.bucket][ident]
            if not buckets[ref.bucket]:
                del buckets[ref.bucket]
            self.touched.add((ref.table, ref.bucket))
        for ref in added:
            ident = run_id(ref)
            if _waits(ref) and ident not in self._refs:
                self.waiting += ref.rows
            self._refs[ident] = ref
            buckets = self._buckets.setdefault(ref.table, {})
            if ref.bucket is not None and ref.bucket not in buckets and ref.table in self._heaps:
                heapq.heappush(self._heaps[ref.table], ref.bucket)
            buckets.setdefault(ref.bucket, {})[ident] = ref
            self.touched.add((ref.table, ref.bucket))


def _waits(ref: RunRef) -> bool:
    """Can the watermark close the bucket of this run?  Buckets of logs only expire."""
    return ref.bucket is not None and not is_log(ref.table)


def outside_dropped_buckets(runs: Iterable[RunRef], drops: Mapping[str, int]) -> tuple[RunRef, ...]:
    """New runs, except those in buckets that the same epoch closed."""
    return tuple(r for r in runs if r.bucket is None or r.bucket >= drops.get(r.table, r.bucket))
