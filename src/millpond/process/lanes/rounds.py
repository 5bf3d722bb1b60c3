"""Decides which keys run through user code together, and in which rounds.

A round is one call for the next row of every key that has one.  A key with many
more rows than the others would run alone in its last rounds, so such keys are
left out and run row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millpond import tuning

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rounds:
    keys: Ints  # the keys that take part, most rows first; each has a lane
    sizes: list[int]  # of each round: how many lanes, from the first on, have a row
    places: Ints  # the places of the rows, round by round, among all rows

    @property
    def rows(self) -> int:
        return len(self.places)


def rounds(starts: Ints) -> Rounds:
    """The rounds for keys whose rows begin at `starts`, which ends with the end of the last key.

    >>> found = rounds(np.arange(0, 2001, 2))  # a thousand keys of two rows: enough for lanes to pay off
    >>> len(found.keys), found.sizes, found.places[:2].tolist()
    (1000, [1000, 1000], [0, 2])
    """
    counts = np.diff(starts)
    most = rows_per_key_max(counts)
    order = np.argsort(-counts, kind="stable")
    keys = order[(counts[order] <= most) & (counts[order] > 0)]
    first, counts = starts[:-1][keys], counts[keys]
    longest = int(counts[0]) if len(counts) else 0
    sizes = len(counts) - np.searchsorted(counts[::-1], np.arange(longest), "right")
    places = np.empty(int(counts.sum()), np.int64)
    filled = 0
    for number, size in enumerate(sizes.tolist()):
        np.add(first[:size], number, out=places[filled : filled + size])
        filled += size
    return Rounds(keys, sizes.tolist(), places)


def rows_per_key_max(counts: Ints) -> int:
    """The most rows that a key may have to take part; 0 if lanes are not worth it."""
    if not len(counts):
        return 0
    row_counts, keys_of_size = np.unique(counts, return_counts=True)
    rows_left_out = int(counts.sum()) - np.cumsum(row_counts * keys_of_size)
    cost = row_counts * tuning.LANES_ROUND_NS + rows_left_out * tuning.LANES_ROW_NS
    best = int(np.argmin(cost))
    return int(row_counts[best]) if cost[best] < int(counts.sum()) * tuning.LANES_ROW_NS else 0
