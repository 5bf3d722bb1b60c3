"""Groups of dense integers: counted and summed by place, without sorting a row.

Keys that are integers without NULL and lie close together number their groups
themselves.  Sums go through double precision, so they are only taken where no
sum can leave the integers that doubles hold exactly: then they are exact.

Rows are taken a piece at a time: the columns of an epoch are never copied into
one, and what a piece needs fits into memory that is there already (to fault in
fresh pages for ten million rows costs more than to count them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import hashing
from millpond.identity import one_chunk
from millpond.ordering import stable_argsort

Ints = npt.NDArray[np.int64]

ROWS_MIN = 20_000  # below, a sort is as fast
SPARSE = 2  # places for each row, at most
PIECE = 1 << 20  # rows
EXACT = 1 << 53


@dataclass(frozen=True)
class Places:
    """The groups of some rows, in the order of their hashes."""

    codes: tuple[Ints, ...]  # the place of each row, piece by piece
    size: int  # number of places
    groups: Ints  # the places that have rows, in the order of their hashes
    keys: pa.Array
    hashes: npt.NDArray[np.uint64]
    counts: Ints  # rows of each group

    def sums(self, column: pa.ChunkedArray) -> Ints | None:
        """The sum of each group of a column without NULL, or None where it might not be exact."""
        low, high = _ends(column)
        if max(abs(high), abs(low)) * len(column) >= EXACT:
            return None
        total = np.zeros(self.size)
        for codes, values in zip(self.codes, _pieces(column), strict=True):
            total += np.bincount(codes, values, self.size)
        return total[self.groups].astype(np.int64)


def places(key: pa.ChunkedArray) -> Places | None:
    """How rows with this key fall into places, if their keys are dense."""
    length = len(key)
    if length < ROWS_MIN or not hashing.is_injective([key]):
        return None
    low, high = _ends(key)
    if 0 < low <= (high - low) // 8 and high < SPARSE * length:
        low = 0  # some places stay empty, but the keys are the places
    size = high - low + 1
    if size > SPARSE * length:
        return None
    codes = tuple(values - low if low else values for values in _pieces(key))
    by_place = np.zeros(size, np.int64)
    for piece in codes:
        by_place += np.bincount(piece, minlength=size)
    there = np.flatnonzero(by_place)
    keys = pa.array(there + low).cast(key.type)
    hashes = hashing.hash_columns([keys], len(keys))
    order = stable_argsort(hashes)
    groups = there[order]
    return Places(codes, size, groups, keys.take(pa.array(order)), hashes[order], by_place[groups])


def _ends(column: pa.ChunkedArray) -> tuple[int, int]:
    ends = pc.min_max(column)
    return ends["min"].as_py(), ends["max"].as_py()


def _pieces(column: pa.ChunkedArray) -> Iterator[Ints]:
    for start in range(0, len(column), PIECE):
        piece = one_chunk(column.slice(start, PIECE))
        yield piece.cast(pa.int64()).to_numpy()
