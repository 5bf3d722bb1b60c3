"""Merging runs: rows of several runs put in table order, one row per identity.

Law: the result depends on the runs' contents and their age alone. Under rule
*latest* the newest row of an identity stands; under *weights* the weights sum
and zero is gone. Lookups, scans and compaction all end here, so they cannot
disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.identity import equal_rows, refine, take, ties
from millpond.ordering import Order
from millpond.state.packed import PackedFile
from millpond.state.run_ref import RunRef
from millpond.state.segment import Segment
from millpond.state.table_spec import HASH, WEIGHT, TableSpec

DENSE = 2  # rows of a stretch for each that is wanted, at most, to take it as a whole

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
class Places:
    """Rows by where they lie: row i is row position[i] of segments[part[i]].

    Nothing is read until a column is asked for, and then only these rows.
    Segments stand newest first.
    """

    segments: tuple[Segment, ...]
    part: npt.NDArray[np.integer]
    position: Ints
    fill: Mapping[str, pa.Array]  # what a column gives in a segment that is older than it

    @staticmethod
    def of(spec: TableSpec, pieces: Sequence[tuple[Segment, Ints]]) -> Places:
        part: npt.NDArray[np.integer] = np.arange(len(pieces))
        if len(pieces) < 2**16:
            part = part.astype(np.uint16)  # numpy sorts 16 bits by radix
        part = np.repeat(part, [len(rows) for _, rows in pieces])
        position = np.concatenate([rows for _, rows in pieces]) if pieces else np.empty(0, np.int64)
        return Places(tuple(segment for segment, _ in pieces), part, position, spec.fill)

    def __len__(self) -> int:
        return len(self.part)

    def select(self, rows: Ints) -> Places:
        return Places(self.segments, self.part[rows], self.position[rows], self.fill)

    def column(self, name: str) -> pa.Array:
        """The values of one column, in row order."""
        fill = self.fill.get(name)
        spans, index = self._spans
        if index is not None:
            together = [segment.slice(name, start, stop, fill) for segment, start, stop in spans]
            return pc.take(pa.concat_arrays(together), index, boundscheck=False)
        pieces, inverse = self._plan
        arrays = [segment.take(name, rows, fill) for segment, rows in pieces]
        if len(arrays) == 1:
            return arrays[0]
        together = pa.concat_arrays(arrays)
        return together if inverse is None else take(together, inverse)

    def weights(self) -> Ints:
        values: Ints = self.column(WEIGHT).to_numpy()
        return values

    @cached_property
    def _spans(self) -> tuple[list[tuple[Segment, int, int]], pa.Array | None]:
        """Where most rows of several segments are wanted: the stretches they lie in, and where.

        One gather a column is then cheaper than one a segment.
        """
        count = len(self.segments)
        if count < 2 or not len(self.part):
            return [], None
        low = np.full(count, 2**62, np.int64)
        high = np.full(count, -1, np.int64)
        np.minimum.at(low, self.part, self.position)
        np.maximum.at(high, self.part, self.position)
        sizes = np.maximum(high + 1 - low, 0)
        if int(sizes.sum()) > DENSE * len(self.part):
            return [], None
        ends = np.cumsum(sizes)
        index = self.position + (ends - sizes - low)[self.part]
        spans = [
            (segment, start, start + size)
            for segment, start, size in zip(self.segments, low.tolist(), sizes.tolist(), strict=True)
            if size
        ]
        return spans, pa.array(index)

    @cached_property
    def _plan(self) -> tuple[list[tuple[Segment, Ints]], Ints | None]:
        """Which rows to take from which segment, and how to put them back in row order."""
        if len(self.segments) == 1:
            return [(self.segments[0], self.position)], None
        by_part = np.argsort(self.part, kind="stable")
        ends = np.cumsum(np.bincount(self.part, minlength=len(self.segments)))
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
    places: Places,
    group: npt.NDArray[np.integer],
    buckets: Ints | None,
    *,
    grouped_by_key: bool,
) -> tuple[Ints, Bools]:
    """Table order of rows from several runs: (perm, same), same[i] = perm[i] has the identity of perm[i - 1].

    `group` is the key's number, or only its hash, and sorted within each run.
    The sort is stable: within one identity the newest run comes first.
    `buckets` (per segment) tells time buckets apart, which are tables of their own under *latest*.
    """
    length = len(places)
    if len(places.segments) == 1:
        return np.arange(length), np.zeros(length, np.bool_)
    perm = np.argsort(group, kind="stable")
    same = ties(group[perm])
    part = places.part[perm]
    crossing = same.copy()
    crossing[1:] &= part[1:] != part[:-1]
    if not crossing.any():
        return perm, np.zeros(length, np.bool_)
    # A group that lies within one run is sorted and distinct already.
    number = np.cumsum(~same) - 1
    mixed = np.zeros(number[-1] + 1, np.bool_)
    mixed[number[crossing]] = True
    same &= mixed[number]

    def by(name: str) -> Callable[[Ints], pa.Array]:
        return lambda rows: places.select(rows).column(name)

    one_each = len(spec.key) == 1 and all(s.all_differ(spec.key[0]) for s in places.segments)
    if not grouped_by_key and not one_each:
        again = np.flatnonzero(same)
        before, after = places.select(perm[again - 1]), places.select(perm[again])
        if not equal_rows(
            [before.column(n) for n in spec.key], [after.column(n) for n in spec.key], len(again)
        ).all():
            for name in spec.key:  # two keys share a hash
                refine(perm, same, by(name), Order(""), stable=True)
    for order in spec.order_within_key:
        refine(perm, same, by(order.column), order, stable=True)
    if spec.rule == "latest" and buckets is not None:
        refine(perm, same, lambda rows: pa.array(buckets[places.part[rows]]), Order(""), stable=True)
    return perm, same


def settle(spec: TableSpec, weights: Ints, perm: Ints, same: Bools) -> tuple[Ints, Ints]:
    """One row per identity and its weight: the newest, or the sum; zero is still there."""
    if not same.any():
        return perm, weights[perm]
    starts = np.flatnonzero(~same)
    rows = perm[starts]
    return rows, weights[rows] if spec.rule == "latest" else np.add.reduceat(weights[perm], starts)


def bucket_numbers(refs: Sequence[RunRef]) -> Ints | None:
    """The bucket of each ref, -2**63 for none; None when they are all in one."""
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

    Tombstones may be dropped only where nothing older can lie under them. The
    result is ready for `PackedWriter.add(presorted=True)`; memory follows the cut.
    """
    names = spec.schema.names if columns is None else list(columns)
    pieces = [
        (ref, segment, np.arange(start, stop))
        for ref, segment, start, stop in cut_runs(refs, open_file, h_min, h_max)
    ]
    return merge_found(spec, pieces, names, drop_tombstones=drop_tombstones)


def cut_runs(refs: Sequence[RunRef], open_file: OpenFile, h_min: int, h_max: int) -> list[Cut]:
    """The rows of each of these runs with a hash in [h_min, h_max], the newest first."""
    found = []
    for ref in newest_first(refs):
        if ref.rows and ref.meets(h_min, h_max):
            segment = open_file(ref.file).segment(ref.segment)
            start, stop = segment.cut(max(h_min, ref.h_min), min(h_max, ref.h_max))
            if stop > start:
                found.append((ref, segment, start, stop))
    return found


def merge_found(
    spec: TableSpec, found: Sequence[Found], names: Sequence[str], *, drop_tombstones: bool
) -> pa.Table:
    """Rows of some runs, newest first, merged and sorted; each run gives rows in its own order."""
    own = [spec.schema.field(name) for name in names]
    schema = pa.schema([pa.field(HASH, pa.uint64()), *own, pa.field(WEIGHT, pa.int64())])
    if not found:
        return schema.empty_table()
    places = Places.of(spec, [(segment, rows) for _, segment, rows in found])
    group = np.concatenate([segment.hashes_at(rows) for _, segment, rows in found])
    perm, same = arrange(
        spec, places, group, bucket_numbers([ref for ref, *_ in found]), grouped_by_key=False
    )
    rows, weights = settle(spec, places.weights(), perm, same)
    if spec.rule == "weights" or drop_tombstones:
        alive = np.flatnonzero(weights)
        if len(alive) < len(rows):
            rows, weights = rows[alive], weights[alive]
    places = places.select(rows)
    arrays = [pa.array(group[rows]), *(places.column(name) for name in names), pa.array(weights)]
    return pa.table(arrays, schema=schema)
