"""Groups of dense integers: counted and summed by place, without sorting a row.

Keys that are integers without NULL and lie close together number their groups
themselves.  Sums go through double precision, so they are only taken where no
sum can leave the integers that doubles hold exactly: then they are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.ordering import stable_argsort

Ints = npt.NDArray[np.int64]

ROWS_MIN = 20_000  # below, a sort is as fast
SPARSE = 2  # places for each row, at most
EXACT = 1 << 53


@dataclass(frozen=True)
class Places:
    """The groups of some rows, in the order of their hashes."""

    codes: Ints  # the place of each row
    size: int  # number of places
    groups: Ints  # the places that have rows, in the order of their hashes
    keys: pa.Array
    hashes: npt.NDArray[np.uint64]
    counts: Ints  # rows of each group

    def sums(self, values: Ints) -> Ints | None:
        """The sum of each group, or None where it might not be exact."""
        if len(values) and max(abs(int(values.max())), abs(int(values.min()))) * len(values) >= EXACT:
            return None
        return np.bincount(self.codes, values, self.size)[self.groups].astype(np.int64)


def places(key: pa.Array) -> Places | None:
    """How rows with this key fall into places, if their keys are dense."""
    length = len(key)
    if length < ROWS_MIN or not hashing.is_injective([key]):
        return None
    values: Ints = key.to_numpy().astype(np.int64, copy=False)
    low, high = int(values.min()), int(values.max())
    size = high - low + 1
    if size > SPARSE * length:
        return None
    codes = values - low if low else values
    by_place = np.bincount(codes, minlength=size)
    there = np.flatnonzero(by_place)
    keys = pa.array(there + low).cast(key.type)
    hashes = hashing.hash_columns([keys], len(keys))
    order = stable_argsort(hashes)
    groups = there[order]
    return Places(codes, size, groups, keys.take(pa.array(order)), hashes[order], by_place[groups])
