"""Scans a table: all its live rows in a range of hashes, in table order or unordered.

Law: a scan returns the same rows and weights as a merge of all runs.

A sorted scan merges all runs.  An unsorted scan copies as little as possible.  Only rows whose hash occurs in
several runs can replace or cancel each other: it merges these, and returns all other rows as slices of their
run.  How it finds them depends on the runs of a range of hashes:

- one run: nothing is merged;
- one run far larger than all others together: the hashes of the others are searched in it, so that the cost
  follows the small runs (law 5, for readers);
- otherwise the hashes of all runs are sorted.  If many are shared, or there are few rows, merging all rows is
  cheaper than separating them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import delta as deltas
from millpond import tuning
from millpond.delta import WEIGHT
from millpond.identity import ties
from millpond.state.runs.merge import Cut, Found, OpenFile, cut_runs, merge_rows, merge_segments
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import Segment, expand
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TableScan:
    """A scan of the rows whose hash lies in [h_min, h_max]; it reads only these columns."""

    spec: TableSpec
    runs: Sequence[RunRef]
    open_file: OpenFile
    columns: Sequence[str]
    h_min: int = 0
    h_max: int = 2**64 - 1

    def sorted(self) -> pa.Table:
        """All rows in table order: _h, the columns, _w."""
        return merge_segments(
            self.spec,
            self.runs,
            self.open_file,
            self.h_min,
            self.h_max,
            drop_tombstones=True,
            columns=self.columns,
        )

    def unsorted(self) -> pa.Table:
        """All rows, unordered, as one table: the columns and _w.

        _w is omitted if there are columns and every weight is 1.  Time buckets are scanned together: if many
        are small, that is faster than one by one.
        """
        parts = [*self._rows(cut_runs(self.runs, self.open_file, self.h_min, self.h_max))]
        if all(WEIGHT not in rows.column_names for rows in parts) and self.columns:
            return pa.concat_tables(parts) if parts else self._schema(weight=False).empty_table()
        parts = [
            rows if WEIGHT in rows.column_names else deltas.with_weights(rows, deltas.weights(rows))
            for rows in parts
        ]
        return pa.concat_tables(parts) if parts else self._schema(weight=True).empty_table()

    def batches(self) -> Iterator[pa.Table]:
        """The same, one range of hashes of one time bucket at a time, which bounds the memory."""
        for bucket in _by_bucket(self.runs):
            for part in hash_ranges(bucket):
                low, high = max(part.h_min, self.h_min), min(part.h_max, self.h_max)
                yield from self._rows(cut_runs(part.runs, self.open_file, low, high))

    def batches_are_sorted(self) -> bool:
        """Are the batches in table order: is there one bucket, and no hash that two runs share?"""
        buckets = _by_bucket(self.runs)
        return len(buckets) < 2 and all(len(part.runs) == 1 for b in buckets for part in hash_ranges(b))

    # ------------------------------------------------------------ finding what must be merged

    def _rows(self, cuts: Sequence[Cut]) -> Iterator[pa.Table]:
        """The rows of some runs, newest first."""
        if len(cuts) < 2:
            for _, segment, start, stop in cuts:
                yield self._slice(segment, start, stop)
            return
        sizes = [stop - start for _, _, start, stop in cuts]
        largest = sizes.index(max(sizes))
        if (sum(sizes) - sizes[largest]) * tuning.SCAN_OVERLAY_FACTOR <= sizes[largest]:
            yield from self._search_largest(cuts, largest)
        elif sum(sizes) <= tuning.SCAN_MERGE_ROWS_MAX:
            yield self._merged([(ref, segment, np.arange(a, b)) for ref, segment, a, b in cuts])
        else:
            yield from self._sort_hashes(cuts)

    def _search_largest(self, cuts: Sequence[Cut], largest: int) -> Iterator[pa.Table]:
        """Merge all rows of the small runs with the rows of the largest run that have the same hashes."""
        _, segment, start, stop = cuts[largest]
        others = [cut for number, cut in enumerate(cuts) if number != largest]
        touched = np.unique(np.concatenate([small.hashes(a, b) for _, small, a, b in others]))
        own = segment.hashes(start, stop)
        low, high = np.searchsorted(own, touched, "left"), np.searchsorted(own, touched, "right")
        present = np.flatnonzero(high > low)
        low, high = low[present] + start, high[present] + start
        rows: list[Found] = [(ref, small, np.arange(a, b)) for ref, small, a, b in cuts]
        rows[largest] = (cuts[largest][0], segment, expand(low, high))
        yield self._merged([one for one in rows if len(one[2])])
        yield from self._slice_without(segment, start, stop, low, high)

    def _slice_without(
        self, segment: Segment, start: int, stop: int, low: Ints, high: Ints
    ) -> Iterator[pa.Table]:
        """The rows [start, stop) of a segment without the ranges [low, high)."""
        if len(low) * tuning.SCAN_SLICE_ROWS < stop - start:
            for a, b in zip([start, *high.tolist()], [*low.tolist(), stop], strict=True):
                if b > a:
                    yield self._slice(segment, a, b)
            return
        keep = np.ones(stop - start, np.bool_)
        keep[expand(low, high) - start] = False
        yield self._slice(segment, start, stop, keep)

    def _sort_hashes(self, cuts: Sequence[Cut]) -> Iterator[pa.Table]:
        """Merge the rows whose hash occurs in two runs, found by sorting the hashes of all runs."""
        hashes = np.concatenate([segment.hashes(start, stop) for _, segment, start, stop in cuts])
        sizes = [stop - start for _, _, start, stop in cuts]
        run = np.repeat(np.arange(len(cuts), dtype=np.uint32), sizes)
        order = np.argsort(hashes, kind="stable")  # each run is sorted, so this merges them
        same = ties(hashes[order])
        crossing = same.copy()  # the previous row has the same hash and is in another run
        crossing[1:] &= run[order[1:]] != run[order[:-1]]
        crossings = np.count_nonzero(crossing)
        if crossings * tuning.SCAN_SHARED_ROWS_FACTOR > len(hashes):
            rows: list[Found] = [(ref, segment, np.arange(a, b)) for ref, segment, a, b in cuts]
            yield self._merged(rows, order)
            return
        shared = _shared_rows(order, same, crossing, sizes) if crossings else None
        if shared is not None:
            rows = [
                (ref, segment, start + np.flatnonzero(mask))
                for (ref, segment, start, _), mask in zip(cuts, shared, strict=True)
            ]
            yield self._merged([one for one in rows if len(one[2])])
        for number, (_, segment, start, stop) in enumerate(cuts):
            keep = None if shared is None or not shared[number].any() else ~shared[number]
            if keep is None or keep.any():
                yield self._slice(segment, start, stop, keep)

    # ------------------------------------------------------------ rows

    def _merged(self, rows_of_runs: Sequence[Found], order: Ints | None = None) -> pa.Table:
        rows = merge_rows(self.spec, rows_of_runs, self.columns, drop_tombstones=True, by_hash=order)
        weights = rows.column(WEIGHT)
        plain = bool(self.columns) and bool((weights.to_numpy() == 1).all())
        arrays = [*rows.columns[1:-1], *([] if plain else [weights])]
        return pa.table(arrays, schema=self._schema(weight=not plain))

    def _slice(self, segment: Segment, start: int, stop: int, keep: Bools | None = None) -> pa.Table:
        """Rows [start, stop) of a segment without tombstones; no copy if there are none."""
        plain = bool(self.columns) and _every_weight_is_one(segment)
        names = [*self.columns] if plain else [*self.columns, WEIGHT]
        arrays = [segment.slice(name, start, stop, self.spec.fill.get(name)) for name in names]
        if not plain:
            live = arrays[-1].to_numpy() != 0
            if not live.all():
                keep = live if keep is None else keep & live
        rows = pa.table(arrays, schema=self._schema(weight=not plain))
        return rows if keep is None else rows.filter(pa.array(keep))

    def _schema(self, *, weight: bool) -> pa.Schema:
        last = [pa.field(WEIGHT, pa.int64())] if weight else []
        return pa.schema([*(self.spec.schema.field(name) for name in self.columns), *last])


@dataclass(frozen=True)
class HashRange:
    """A range of hashes of one bucket, and the runs that may contain some of it, the largest first."""

    h_min: int
    h_max: int
    runs: tuple[RunRef, ...]


def hash_ranges(runs: Sequence[RunRef]) -> list[HashRange]:
    """The ranges of hashes between which the largest run changes, by hash; all runs are of one bucket.

    >>> def run(name, low, high, rows):
    ...     return RunRef("t", name, 0, None, 0, 0, rows, 0, low, high, "delta")
    >>> found = hash_ranges([run("a", 0, 9, 100), run("b", 5, 7, 1), run("c", 10, 19, 100)])
    >>> [(r.h_min, r.h_max, [run.file for run in r.runs]) for r in found]
    [(0, 4, ['a']), (5, 7, ['a', 'b']), (8, 9, ['a']), (10, 19, ['c'])]
    """
    edges = sorted({e for r in runs for e in (r.h_min, r.h_max + 1)})
    ranges: list[HashRange] = []
    for low, after in pairwise(edges):
        here = [r for r in runs if r.h_min <= low and after - 1 <= r.h_max]
        if not here:
            continue
        here.sort(key=lambda r: -r.rows)
        last = ranges[-1] if ranges else None
        single = len(here) == 1
        if (
            last is not None
            and last.h_max + 1 == low
            and last.runs[0] is here[0]
            and (len(last.runs) == 1) == single
        ):
            more = tuple(r for r in here if r not in last.runs)
            ranges[-1] = HashRange(last.h_min, after - 1, last.runs + more)
        else:
            ranges.append(HashRange(low, after - 1, tuple(here)))
    return ranges


def _by_bucket(runs: Sequence[RunRef]) -> list[list[RunRef]]:
    """A row is replaced or cancelled only within its time bucket."""
    by_bucket: dict[int | None, list[RunRef]] = {}
    for ref in runs:
        if ref.rows:
            by_bucket.setdefault(ref.bucket, []).append(ref)
    return list(by_bucket.values())


def _shared_rows(order: Ints, same: Bools, crossing: Bools, sizes: Sequence[int]) -> list[Bools]:
    """For each run, the rows whose hash also occurs in another run."""
    group = np.cumsum(~same) - 1
    mixed = np.zeros(int(group[-1]) + 1, np.bool_)
    mixed[group[crossing]] = True
    mask = np.zeros(len(order), np.bool_)
    mask[order] = mixed[group]
    return np.split(mask, np.cumsum(sizes)[:-1])


def _every_weight_is_one(segment: Segment) -> bool:
    weight = segment.entry.constants.get(WEIGHT)
    return weight is not None and weight[0].as_py() == 1
