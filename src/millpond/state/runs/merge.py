"""Merges runs: sorts the rows of several runs in table order, one row per identity.

Law: the result depends only on the contents of the runs and their age.  Under rule *latest* the newest row of
an identity wins; under *weights* the weights are added, and a row of weight zero is dropped.  Lookups, scans
and compaction all use this module, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import tuning
from millpond.delta import HASH, WEIGHT
from millpond.identity import equal_rows, refine, take, ties
from millpond.ordering import Order
from millpond.state.runs.missing_column import Fill
from millpond.state.runs.packed import PackedFile
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import Segment
from millpond.state.tables.table_spec import TableSpec

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

OpenFile = Callable[[str], PackedFile]
Cut = tuple[RunRef, Segment, int, int]  # the rows [start, stop) of a run
Found = tuple[RunRef, Segment, Ints]  # rows of a run, in its order


def newest_first(refs: Iterable[RunRef]) -> list[RunRef]:
    """Refs by age; those of one content interval have disjoint hash ranges (or buckets)."""
    return sorted(refs, key=lambda ref: (-ref.hi, -ref.lo, ref.h_min, ref.file, ref.segment))


@dataclass(frozen=True)
class RowLocations:
    """Rows by location: row i is row position[i] of segments[segment_of[i]].

    A column is read only when it is needed, and only in these rows.  Segments are newest first.
    """

    segments: tuple[Segment, ...]
    segment_of: npt.NDArray[np.integer]
    position: Ints
    fill: Mapping[str, Fill]  # of columns in segments written before they were declared

    @staticmethod
    def of(spec: TableSpec, pieces: Sequence[tuple[Segment, Ints]]) -> RowLocations:
        part: npt.NDArray[np.integer] = np.arange(len(pieces))
        if len(pieces) < 2**16:
            part = part.astype(np.uint16)  # numpy sorts 16 bits by radix
        part = np.repeat(part, [len(rows) for _, rows in pieces])
        position = np.concatenate([rows for _, rows in pieces]) if pieces else np.empty(0, np.int64)
        return RowLocations(tuple(segment for segment, _ in pieces), part, position, spec.fill)

    def __len__(self) -> int:
        return len(self.segment_of)

    def select(self, rows: Ints) -> RowLocations:
        return RowLocations(self.segments, self.segment_of[rows], self.position[rows], self.fill)

    def column(self, name: str) -> pa.Array:
        """The values of one column, in row order."""
        fill = self.fill.get(name)
        spans, index = self._spans
        if index is not None:
            joined = [segment.slice(name, start, stop, fill) for segment, start, stop in spans]
            return pc.take(pa.concat_arrays(joined), index, boundscheck=False)
        pieces, inverse = self._plan
        arrays = [segment.take(name, rows, fill) for segment, rows in pieces]
        if len(arrays) == 1:
            return arrays[0]
        joined = pa.concat_arrays(arrays)
        return joined if inverse is None else take(joined, inverse)

    def weights(self) -> Ints:
        values: Ints = self.column(WEIGHT).to_numpy()
        return values

    @cached_property
    def _spans(self) -> tuple[list[tuple[Segment, int, int]], pa.Array | None]:
        """If most rows of several segments are needed: the row range of each, and the index into them.

        Then one gather per column is cheaper than one per segment.
        """
        count = len(self.segments)
        if count < 2 or not len(self.segment_of):
            return [], None
        low = np.full(count, 2**62, np.int64)
        high = np.full(count, -1, np.int64)
        np.minimum.at(low, self.segment_of, self.position)
        np.maximum.at(high, self.segment_of, self.position)
        sizes = np.maximum(high + 1 - low, 0)
        if int(sizes.sum()) > tuning.MERGE_RANGE_ROWS_PER_ROW * len(self.segment_of):
            return [], None
        ends = np.cumsum(sizes)
        index = self.position + (ends - sizes - low)[self.segment_of]
        spans = [
            (segment, start, start + size)
            for segment, start, size in zip(self.segments, low.tolist(), sizes.tolist(), strict=True)
            if size
        ]
        return spans, pa.array(index)

    @cached_property
    def _plan(self) -> tuple[list[tuple[Segment, Ints]], Ints | None]:
        """Which rows to take from which segment, and how to restore the row order."""
        if len(self.segments) == 1:
            return [(self.segments[0], self.position)], None
        by_part = np.argsort(self.segment_of, kind="stable")
        ends = np.cumsum(np.bincount(self.segment_of, minlength=len(self.segments)))
        rows = self.position[by_part]
        starts = np.concatenate([[0], ends[:-1]])
        pieces = [
            (segment, rows[start:end])
            for segment, start, end in zip(self.segments, starts, ends, strict=True)
            if end > start
        ] or [(self.segments[0], rows)]
        inverse = np.empty(len(by_part), np.int64)
        inverse[by_part] = np.arange(len(by_part))
        return pieces, inverse


def arrange(
    spec: TableSpec,
    rows_at: RowLocations,
    group: npt.NDArray[np.integer],
    buckets: Ints | None,
    *,
    grouped_by_key: bool,
    by_group: Ints | None = None,
) -> tuple[Ints, Bools]:
    """Table order of rows from several runs: (perm, same), same[i] = perm[i] has the identity of perm[i - 1].

    `group` is the key's number, or only its hash, and is sorted within each run.  The sort is stable: within
    one identity the newest run comes first.  `by_group` is this sort, if the caller has it; it is modified.
    `buckets` has the time bucket of each segment; under *latest* each bucket is a separate table.
    """
    length = len(rows_at)
    if len(rows_at.segments) == 1:
        return np.arange(length), np.zeros(length, np.bool_)
    perm = np.argsort(group, kind="stable") if by_group is None else by_group
    same = ties(group[perm])
    part = rows_at.segment_of[perm]
    crossing = same.copy()
    crossing[1:] &= part[1:] != part[:-1]
    if not crossing.any():
        return perm, np.zeros(length, np.bool_)
    # Within one run, a group is already sorted and distinct.
    number = np.cumsum(~same) - 1
    mixed = np.zeros(number[-1] + 1, np.bool_)
    mixed[number[crossing]] = True
    same &= mixed[number]

    def by(name: str) -> Callable[[Ints], pa.Array]:
        return lambda rows: rows_at.select(rows).column(name)

    one_each = len(spec.key) == 1 and all(s.all_differ(spec.key[0]) for s in rows_at.segments)
    if not grouped_by_key and not one_each:
        again = np.flatnonzero(same)
        before, after = rows_at.select(perm[again - 1]), rows_at.select(perm[again])
        if not equal_rows(
            [before.column(n) for n in spec.key], [after.column(n) for n in spec.key], len(again)
        ).all():
            for name in spec.key:  # two keys share a hash
                refine(perm, same, by(name), Order(""), stable=True)
    for order in spec.order_within_key:
        refine(perm, same, by(order.column), order, stable=True)
    if spec.rule == "latest" and buckets is not None:
        refine(perm, same, lambda rows: pa.array(buckets[rows_at.segment_of[rows]]), Order(""), stable=True)
    return perm, same


def settle(spec: TableSpec, weights: Ints, perm: Ints, same: Bools) -> tuple[Ints, Ints]:
    """One row per identity with its weight: the newest, or the sum; rows of weight zero are included."""
    if not same.any():
        return perm, weights[perm]
    starts = np.flatnonzero(~same)
    rows = perm[starts]
    return rows, weights[rows] if spec.rule == "latest" else np.add.reduceat(weights[perm], starts)


def bucket_numbers(refs: Sequence[RunRef]) -> Ints | None:
    """The bucket of each ref, -2**63 for none; None if all are in one."""
    numbers = np.array([-(2**63) if ref.bucket is None else ref.bucket for ref in refs], np.int64)
    return numbers if len(numbers) and (numbers != numbers[0]).any() else None


def merge_segments(
    spec: TableSpec,
    refs: Sequence[RunRef],
    open_file: OpenFile,
    h_min: int = 0,
    h_max: int = 2**64 - 1,
    drop_tombstones: bool = False,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The rows of these refs with a hash in [h_min, h_max], merged and sorted: _h, columns, _w.

    Tombstones may be dropped only if no older run can contain their keys.  The result is ready for
    `PackedWriter.add(presorted=True)`; memory is proportional to the hash range.
    """
    names = spec.schema.names if columns is None else list(columns)
    pieces = [
        (ref, segment, np.arange(start, stop))
        for ref, segment, start, stop in cut_runs(refs, open_file, h_min, h_max)
    ]
    return merge_rows(spec, pieces, names, drop_tombstones=drop_tombstones)


def cut_runs(refs: Sequence[RunRef], open_file: OpenFile, h_min: int, h_max: int) -> list[Cut]:
    """The rows of each of these runs with a hash in [h_min, h_max], newest run first."""
    cuts = []
    for ref in newest_first(refs):
        if ref.rows and ref.meets(h_min, h_max):
            segment = open_file(ref.file).segment(ref.segment)
            start, stop = segment.cut(max(h_min, ref.h_min), min(h_max, ref.h_max))
            if stop > start:
                cuts.append((ref, segment, start, stop))
    return cuts


def merge_rows(
    spec: TableSpec,
    found: Sequence[Found],
    names: Sequence[str],
    *,
    drop_tombstones: bool,
    by_hash: Ints | None = None,
) -> pa.Table:
    """Merge and sort rows of some runs, newest first; the rows of each run are in its own order.

    `by_hash` is a stable argsort of their hashes, if the caller has one.
    """
    own = [spec.schema.field(name) for name in names]
    schema = pa.schema([pa.field(HASH, pa.uint64()), *own, pa.field(WEIGHT, pa.int64())])
    if not found:
        return schema.empty_table()
    rows_at = RowLocations.of(spec, [(segment, rows) for _, segment, rows in found])
    group = np.concatenate([segment.hashes_at(rows) for _, segment, rows in found])
    perm, same = arrange(
        spec,
        rows_at,
        group,
        bucket_numbers([ref for ref, *_ in found]),
        grouped_by_key=False,
        by_group=by_hash,
    )
    rows, weights = settle(spec, rows_at.weights(), perm, same)
    if spec.rule == "weights" or drop_tombstones:
        alive = np.flatnonzero(weights)
        if len(alive) < len(rows):
            rows, weights = rows[alive], weights[alive]
    rows_at = rows_at.select(rows)
    arrays = [pa.array(group[rows]), *(rows_at.column(name) for name in names), pa.array(weights)]
    return pa.table(arrays, schema=schema)
