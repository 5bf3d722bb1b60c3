"""AMS: the second frequency moment, the sum over values of their squared counts, from 5 rows of 1,024 sums.

Each value adds +1 or -1 to one sum of each row; the squares of a row's sums add up to an unbiased
estimate with a relative standard error of at most sqrt(2 / 1,024) = 4.4 %, and the median of the rows
is the answer.  The sums are linear, so rows can be retracted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.kernels.synopses.cell_sketch import CellSketch, Ints
from millpond.kernels.synopses.item_hashes import U64, mixed

DEPTH, WIDTH_BITS = 5, 10
WIDTH = 1 << WIDTH_BITS
SKETCH = CellSketch("ams", 3, DEPTH * WIDTH, "count")
ROW_STANDARD_ERROR = (2 / WIDTH) ** 0.5


def cells(hashes: U64) -> tuple[Ints, Ints]:
    """The sum of each row that a hash belongs to, and its sign: two arrays of DEPTH columns."""
    index, sign = [], []
    for row in range(DEPTH):
        bits = mixed(hashes, 31 + row)
        index.append((bits >> np.uint64(64 - WIDTH_BITS)).astype(np.int64) + row * WIDTH)
        sign.append((bits & np.uint64(1)).astype(np.int64) * 2 - 1)
    return np.stack(index, axis=1), np.stack(sign, axis=1)


def estimates(sketches: pa.Array) -> npt.NDArray[np.float64]:
    """The second moment of each sketch; 0 for NULL."""
    number, index, value = SKETCH.cells_of(sketches)
    row = number * DEPTH + index // WIDTH
    squares = np.bincount(row, weights=value.astype(np.float64) ** 2, minlength=len(sketches) * DEPTH)
    found: npt.NDArray[np.float64] = np.median(squares.reshape(len(sketches), DEPTH), axis=1)
    return found
