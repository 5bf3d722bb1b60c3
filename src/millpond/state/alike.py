"""Several small tables that are alike, asked for keys at once.

Law: what it gives for each table is what `Table.lookup_one` gives for it alone.  Tables are *alike* if their
columns have the same types in the same places and the same of them are their key; here columns are known by
these places.  Where tables share a stack (`state.packed`) one gather serves all of them.  Where hashes do not
tell keys apart, or a run is not as the others, it gives nothing, and whoever asked asks table by table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.identity import same_rows, take
from millpond.state.merge import OpenFile
from millpond.state.newest import Held, Piece, alive, column, proved
from millpond.state.run_ref import RunRef
from millpond.state.segment import FENCE_ROWS, Segment, stacked_name
from millpond.state.table_spec import HASH, WEIGHT, TableSpec

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ROWS_MAX = FENCE_ROWS  # of a run: of more, a lookup reads only what it needs


def likeness(spec: TableSpec) -> tuple[Any, ...] | None:
    """What is equal in tables that are alike; None for a table that is like none.

    >>> a = TableSpec("a", pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k",))
    >>> likeness(a) == likeness(TableSpec("b", pa.schema([("x", pa.int64()), ("y", pa.int64())]), ("x",)))
    True
    """
    if spec.rule != "latest" or spec.order or spec.time is not None or spec.defaults:
        return None
    if any(isinstance(field.type, pa.BaseExtensionType) for field in spec.schema):
        return None
    return tuple(spec.schema.types), tuple(spec.schema.get_field_index(name) for name in spec.key)


def by_place(spec: TableSpec) -> TableSpec:
    """A table that is like this one, with columns known by their places."""
    names = {name: stacked_name(place) for place, name in enumerate(spec.schema.names)}
    fields = [field.with_name(names[field.name]) for field in spec.schema]
    return TableSpec(spec.name, pa.schema(fields), tuple(names[name] for name in spec.key))


class _ByPlace:
    """A segment of one table, with columns known by their places."""

    def __init__(self, segment: Segment, spec: TableSpec) -> None:
        self._segment = segment
        self._names = {stacked_name(place): name for place, name in enumerate(spec.schema.names)}
        self._names[WEIGHT] = WEIGHT

    def take(self, name: str, positions: Ints, fill: pa.Array | None = None) -> pa.Array:
        return self._segment.take(self._names[name], positions, fill)

    def slice(self, name: str, start: int, stop: int, fill: pa.Array | None = None) -> pa.Array:
        return self._segment.slice(self._names[name], start, stop, fill)

    def bits(self, name: str, rows: Ints, fill: pa.Array | None = None) -> npt.NDArray[Any] | None:
        return self._segment.bits(self._names[name], rows, fill)

    def all_differ(self, name: str) -> bool:
        return self._segment.all_differ(self._names[name])


@dataclass(frozen=True)
class _Batch:
    """Rows of tables that lie together and end with the same epoch: (table, first row, row after its last).

    Merges of the same time need not cover the same epochs, so what is newer may differ within a stack.
    """

    hi: int
    held: Held
    hashes: Hashes
    parts: list[tuple[int, int, int]]


@dataclass(frozen=True)
class Asked:
    """The keys of all tables, those of one after those of the other, each in the order of hashes."""

    hashes: Hashes
    columns: Sequence[pa.Array]  # of the key
    starts: Ints  # where the keys of each table begin, and the end


def lookup(
    specs: Sequence[TableSpec],
    runs: Sequence[Sequence[RunRef]],
    open_file: OpenFile,
    asked: Asked,
    places: Sequence[int],
) -> tuple[Bools, dict[int, pa.Array]] | None:
    """The one row of each key: (found, columns of these places); zero or NULL where nothing is found."""
    batches = _batches(specs, runs, open_file)
    if batches is None:
        return None
    own = by_place(specs[0])
    pieces = _newest(batches, asked)
    key = dict(zip(own.key, asked.columns, strict=True))
    if not proved(own, pieces, key):
        return None
    pieces = alive(pieces)
    found = np.zeros(len(asked.hashes), np.bool_)
    for piece in pieces:
        found[piece.key] = True
    return found, {p: column(own, stacked_name(p), pieces, len(asked.hashes)) for p in places}


def _batches(
    specs: Sequence[TableSpec], runs: Sequence[Sequence[RunRef]], open_file: OpenFile
) -> list[_Batch] | None:
    """The rows of all tables by where they lie, newest first; None where they are many, or share a hash."""
    found: dict[tuple[str, int, int], _Batch] = {}
    for number, (spec, refs) in enumerate(zip(specs, runs, strict=True)):
        names = tuple(spec.schema.names)
        for ref in refs:
            if not ref.rows:
                continue
            file = open_file(ref.file)
            entry = file.entries[ref.segment]
            if ref.h_min > entry.h_min or ref.h_max < entry.h_max or entry.rows > ROWS_MAX:
                return None
            stack = file.stack(ref.segment)
            if stack is None or entry.names != names:  # the table had other columns then: places have moved
                segment = file.segment(ref.segment)
                if not segment.all_distinct():
                    return None
                parts = [(number, 0, segment.rows)]
                hashes = segment.hashes(0, segment.rows)
                own = _Batch(ref.hi, _ByPlace(segment, spec), hashes, parts)
                found[ref.file, -1 - ref.segment, ref.hi] = own
                continue
            batch = found.get((ref.file, entry.offset, ref.hi))
            if batch is None:
                hashes = stack.verified()[HASH].to_numpy()
                batch = found[ref.file, entry.offset, ref.hi] = _Batch(ref.hi, stack, hashes, [])
            assert entry.first is not None
            batch.parts.append((number, entry.first, entry.first + entry.rows))
    return sorted(found.values(), key=lambda batch: batch.hi, reverse=True)


def _newest(batches: Sequence[_Batch], asked: Asked) -> list[Piece]:
    """Where the newest row of each key lies, by hashes alone."""
    left = np.arange(len(asked.hashes))
    pieces = []
    for batch in batches:
        if not len(left):
            break
        hashes = asked.hashes[left]
        bounds = left.searchsorted(asked.starts).tolist()
        row = np.full(len(left), -1, np.int64)
        for number, first, last in batch.parts:
            start, stop = bounds[number], bounds[number + 1]
            if stop > start:
                at = batch.hashes[first:last].searchsorted(hashes[start:stop])
                row[start:stop] = np.minimum(at, last - first - 1) + first
        hit = (row >= 0) & (batch.hashes[row] == hashes)
        if hit.any():
            pieces.append(Piece(batch.held, left[hit], row[hit]))
            left = left[~hit]
    return pieces


def merge(
    specs: Sequence[TableSpec],
    runs: Sequence[Sequence[RunRef]],
    drop_tombstones: Sequence[bool],
    open_file: OpenFile,
) -> tuple[list[int], dict[str, pa.Array]] | None:
    """Runs of each table as one: how many rows each has, and all of them as a stack; None as for `lookup`.

    What it gives for each table is what `merge_segments` gives for it alone.
    """
    batches = _batches(specs, runs, open_file)
    if not batches:
        return None
    own = by_place(specs[0])
    ends = np.cumsum([len(batch.hashes) for batch in batches])
    hashes = np.concatenate([batch.hashes for batch in batches])
    weights: Ints = _all(batches, WEIGHT, None).to_numpy()
    columns = {name: _all(batches, name, own.fill.get(name)) for name in own.schema.names}
    lies: list[list[Ints]] = [[] for _ in specs]
    for batch, end in zip(batches, ends.tolist(), strict=True):
        begin = end - len(batch.hashes)
        for number, first, last in batch.parts:
            lies[number].append(np.arange(begin + first, begin + last))
    if not all(lies):
        return None
    kept: list[Ints] = []
    twice: list[tuple[Ints, Ints]] = []
    for places, drop in zip(lies, drop_tombstones, strict=True):
        rows = np.concatenate(places)
        rows = rows[np.argsort(hashes[rows], kind="stable")]  # of one hash the newest is first
        ordered = hashes[rows]
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        twice.append((rows[again], rows[again + 1]))
        rows = np.delete(rows, again + 1)
        kept.append(rows[weights[rows] != 0] if drop else rows)
    key = [columns[name] for name in own.key]
    before, after = (np.concatenate(side) for side in zip(*twice, strict=True))
    if not hashing.is_injective(key) and not same_rows(key, before, after):
        return None
    chosen = np.concatenate(kept)
    found = {HASH: pa.array(hashes[chosen])}
    found |= {name: take(column, chosen) for name, column in columns.items()}
    found[WEIGHT] = pa.array(weights[chosen])
    return [len(rows) for rows in kept], found


def _all(batches: Sequence[_Batch], name: str, fill: pa.Array | None) -> pa.Array:
    parts = [batch.held.slice(name, 0, len(batch.hashes), fill) for batch in batches]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
