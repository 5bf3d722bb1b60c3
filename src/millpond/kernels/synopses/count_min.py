"""Count-min: how often a value occurs, from 4 rows of 1,024 counters.

The answer is never too low (while no row is retracted), and too high by more than 0.27 % of all
rows of the group for fewer than 2 % of the values.  The counters are sums, so rows can be retracted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millpond.kernels.synopses.cell_sketch import CellSketch, Ints
from millpond.kernels.synopses.item_hashes import U64, mixed

DEPTH, WIDTH_BITS = 4, 10
WIDTH = 1 << WIDTH_BITS
SKETCH = CellSketch("count_min", 2, DEPTH * WIDTH, "count")
ERROR = float(np.e) / WIDTH  # of the number of rows


def cells(hashes: U64) -> Ints:
    """The counters of each hash, one per row: an array of DEPTH columns."""
    rows = [
        (mixed(hashes, 11 + row) >> np.uint64(64 - WIDTH_BITS)).astype(np.int64) + row * WIDTH
        for row in range(DEPTH)
    ]
    return np.stack(rows, axis=1)


def counts(sketches: pa.Array, hashes: U64) -> Ints:
    """For each sketch the count of the value with the hash beside it; 0 for NULL."""
    number, index, value = SKETCH.cells_of(sketches)
    key = number * SKETCH.cells + index
    order = np.argsort(key, kind="stable")
    key, value = key[order], value[order]
    wanted = np.arange(len(sketches))[:, None] * SKETCH.cells + cells(hashes)
    if not len(key):
        return np.zeros(len(sketches), np.int64)
    positions = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    found = np.where(key[positions] == wanted, value[positions], 0)
    least: Ints = found.min(axis=1)
    return least
