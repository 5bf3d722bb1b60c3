"""Groups of dense keys: counts, sums and compares by array position, without sorting rows.

Integer keys without NULL that are close together number their groups directly;
so do rows of several columns whose codes (`packed_rows`) are few.
Sums use 64 bits, so they are computed only where no sum can overflow: then
they are exact.

Rows are processed chunk by chunk: the columns of an epoch are never copied into
one (faulting in fresh pages for ten million rows costs more than counting them).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import hashing, tuning
from millpond.identity import one_chunk
from millpond.kernels.packed_rows import PackedRows
from millpond.ordering import stable_argsort

Ints = npt.NDArray[np.int64]

EXACT = 1 << 63


@dataclass(frozen=True)
class DenseGroups:
    """The groups of some rows, sorted by hash."""

    codes: tuple[Ints, ...]  # the place of each row, chunk by chunk
    size: int  # number of places
    groups: Ints  # the places that have rows, sorted by hash
    keys: tuple[pa.Array, ...]  # of the groups, one array per column
    hashes: npt.NDArray[np.uint64]
    counts: Ints  # rows of each group
    # Cached reads, sums and counts, by the identity of their column, which is referenced: sum and avg
    # need the same ones, and min and max read them.
    _held: dict[int, tuple[Any, list[tuple[Ints, Ints]]]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _sums: dict[int, tuple[Any, Ints | None]] = field(default_factory=dict, compare=False, repr=False)
    _valid: dict[int, tuple[Any, Ints]] = field(default_factory=dict, compare=False, repr=False)

    def sums(self, column: pa.ChunkedArray) -> Ints | None:
        """The sum of each group of a column without NULL, or None if it might not be exact."""
        if id(column) not in self._sums:
            self._sums[id(column)] = column, self._summed(column)
        return self._sums[id(column)][1]

    def _summed(self, column: pa.ChunkedArray) -> Ints | None:
        low, high = _ends(column)
        if max(abs(high), abs(low)) * len(column) >= EXACT:
            return None
        total = np.zeros(self.size, np.int64)
        for codes, values in self._numbers(column):
            np.add.at(total, codes, values)
        return total[self.groups]

    def valid(self, column: pa.ChunkedArray) -> Ints:
        """The number of rows of each group that are not NULL in a column."""
        if id(column) not in self._valid:
            self.count_valid([column])
        return self._valid[id(column)][1]

    def count_valid(self, columns: Sequence[pa.ChunkedArray]) -> None:
        """Count non-NULL values in several columns, as many per pass as fit into a word."""
        bits = int(self.counts.max(initial=1)).bit_length()  # enough for the count of any group
        width = min(63 // bits, 8)
        for at in range(0, len(columns), width):
            some = columns[at : at + width]
            marked = np.arange(1 << len(some), dtype=np.int64)  # bit n: column n is not NULL
            words = np.zeros(len(marked), np.int64)
            for n in range(len(some)):
                words |= ((marked >> n) & 1) << (n * bits)
            total = np.zeros(self.size, np.int64)
            for codes, parts in self._along(pa.table(list(some), [str(n) for n in range(len(some))])):
                flags = np.zeros(len(codes), np.uint8)
                for n, part in enumerate(parts.columns):
                    flags |= part.is_valid().to_numpy().view(np.uint8) << np.uint8(n)
                np.add.at(total, codes, words[flags])
            found = total[self.groups]
            for n, column in enumerate(some):
                self._valid[id(column)] = column, (found >> (n * bits)) & ((1 << bits) - 1)

    def extremes(self, column: pa.ChunkedArray, largest: bool) -> Ints:
        """The greatest (least) value of each group of an int64 column without NULL."""
        ends = np.iinfo(np.int64)
        best = np.full(self.size, ends.min if largest else ends.max, np.int64)
        for codes, values in self._numbers(column):
            (np.maximum if largest else np.minimum).at(best, codes, values)
        return best[self.groups]

    def _numbers(self, column: pa.ChunkedArray) -> list[tuple[Ints, Ints]]:
        if id(column) not in self._held:
            self._held[id(column)] = column, [(codes, _integers(part)) for codes, part in self._along(column)]
        return self._held[id(column)][1]

    def _along(self, column: Any) -> Iterator[tuple[Ints, Any]]:
        """Iterate over the places of rows and their values, chunk by chunk."""
        at = 0
        for codes in self.codes:
            yield codes, column.slice(at, len(codes))
            at += len(codes)


def places(key: pa.ChunkedArray) -> DenseGroups | None:
    """Assign rows with this key to places, if the keys are dense."""
    length = len(key)
    if length < tuning.DENSE_ROWS_MIN or not hashing.is_injective([key]):
        return None
    low, high = _ends(key)
    if 0 < low <= (high - low) // 8 and high < tuning.DENSE_SLOTS_PER_ROW * length:
        low = 0  # some places stay empty, but the keys are the places
    size = high - low + 1
    if size > tuning.DENSE_SLOTS_PER_ROW * length:
        return None
    chunks = [_integers(chunk) for chunk in key.chunks if len(chunk)]
    codes = tuple(values - low if low else values for values in chunks)
    by_place = np.zeros(size, np.int64)
    for chunk in codes:
        np.add.at(by_place, chunk, 1)
    there = np.flatnonzero(by_place)
    keys = pa.array(there + low).cast(key.type)
    hashes = hashing.hash_columns([keys], len(keys))
    order = stable_argsort(hashes)
    groups = there[order]
    return DenseGroups(codes, size, groups, (keys.take(pa.array(order)),), hashes[order], by_place[groups])


def packed_slots(packed: PackedRows) -> DenseGroups | None:
    """Assign rows of several columns to places, if their codes are dense."""
    length = len(packed.codes)
    if length < tuning.DENSE_ROWS_MIN or packed.bits >= 63:
        return None
    codes = packed.codes.view(np.int64)
    size = int(codes.max()) + 1
    if size > tuning.DENSE_SLOTS_PER_ROW * length:
        return None
    by_place = np.bincount(codes, minlength=size)
    there = np.flatnonzero(by_place)
    columns = packed.columns(there.view(np.uint64))
    hashes = hashing.hash_columns(columns, len(there))
    order = stable_argsort(hashes)
    groups = there[order]
    keys = tuple(one_chunk(column).take(pa.array(order)) for column in columns)
    return DenseGroups((codes,), size, groups, keys, hashes[order], by_place[groups])


def _ends(column: pa.ChunkedArray) -> tuple[int, int]:
    ends = pc.min_max(column)
    return ends["min"].as_py(), ends["max"].as_py()


def _integers(column: pa.Array | pa.ChunkedArray) -> Ints:
    values: Ints = one_chunk(column).cast(pa.int64()).to_numpy()
    return values
