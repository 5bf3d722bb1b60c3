"""The least or greatest value of ranges of positions, for many overlapping ranges at once.

Law: a range costs two lookups whatever its length.  A table of powers of two (a "sparse table") has the best
value of every 2, 4, 8, … positions that follow each other, and two of them cover a range.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.identity import one_chunk, take
from millpond.ordering import Order, ranks

Ints = npt.NDArray[np.int64]


def best_of_ranges(values: pa.Array, low: Ints, high: Ints, *, largest: bool) -> pa.Array:
    """The best value of positions low to high (exclusive) of each range; NULL if there is none.

    >>> low, high = np.array([0, 2, 1]), np.array([3, 3, 1])
    >>> best_of_ranges(pa.array([3, 1, None, 2]), low, high, largest=True).to_pylist()
    [3, None, None]
    """
    values = one_chunk(values)
    length = high - low
    some = np.flatnonzero(length > 0)
    index = np.full(len(low), -1, np.int64)
    if len(some):
        rank = ranks(values, Order("", descending=largest))
        power = np.frexp(length[some].astype(np.float64))[1].astype(np.int64) - 1
        best = np.empty(len(some), np.uint64)
        level = rank  # the best of 2**number positions from each one on
        for number in range(int(power.max()) + 1):
            if number:
                half = 1 << (number - 1)
                level = np.minimum(level[:-half], level[half:])
            mine = np.flatnonzero(power == number)
            at = some[mine]
            best[mine] = np.minimum(level[low[at]], level[high[at] - (1 << number)])
        order = np.argsort(rank, kind="stable")
        index[some] = order[np.searchsorted(rank[order], best)]
    return values.take(pa.array(index, mask=index < 0)) if (index < 0).any() else take(values, index)
