"""Bloom filter: whether a value occurs in a group, from 98,304 bits.

A value that occurs is always found.  One that does not is found by mistake with a probability of at
most 1 % while the group has up to 10,000 distinct values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.kernels.synopses.cell_sketch import CellSketch, Ints
from millpond.kernels.synopses.item_hashes import U64, mixed

BITS, HASHES = 98_304, 7
CAPACITY, FALSE_POSITIVES = 10_000, 0.01
SKETCH = CellSketch("bloom", 4, BITS, "bit")


def cells(hashes: U64) -> Ints:
    """The bits of each hash: an array of HASHES columns."""
    columns = [(mixed(hashes, 51 + n) % np.uint64(BITS)).astype(np.int64) for n in range(HASHES)]
    return np.stack(columns, axis=1)


def contains(sketches: pa.Array, hashes: U64) -> npt.NDArray[np.bool_]:
    """For each filter, whether it may contain the value with the hash beside it; not for NULL."""
    number, index, _ = SKETCH.cells_of(sketches)
    key = np.sort(number * BITS + index)
    wanted = np.arange(len(sketches))[:, None] * BITS + cells(hashes)
    if not len(key):
        return np.zeros(len(sketches), np.bool_)
    positions = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    found: npt.NDArray[np.bool_] = (key[positions] == wanted).all(axis=1)
    return found
