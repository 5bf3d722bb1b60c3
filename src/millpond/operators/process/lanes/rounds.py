"""Which keys go through user code together, and in which rounds.

A round is one call for the next row of every key that has one.  A key with many
more rows than the others would leave the lanes beside it empty: such keys are
left out, to go row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

ROUND_NS = 40_000  # about what a round costs, and a row that goes alone
ROW_NS = 800


@dataclass(frozen=True)
class Rounds:
    keys: Ints  # those that take part, the ones with the most rows first: each has a lane
    sizes: list[int]  # of each round: how many lanes, from the first on, have a row in it
    places: Ints  # of the rows, round after round, among all rows

    @property
    def rows(self) -> int:
        return len(self.places)


def rounds(starts: Ints) -> Rounds:
    """Of keys whose rows begin at these places, and the end.

    >>> found = rounds(np.array([0, 1, 3]))
    >>> found.keys.tolist(), found.sizes, found.places.tolist()
    ([1, 0], [2, 1], [1, 0, 2])
    """
    counts = np.diff(starts)
    most = worthwhile(counts)
    order = np.argsort(-counts, kind="stable")
    keys = order[(counts[order] <= most) & (counts[order] > 0)]
    first, counts = starts[:-1][keys], counts[keys]
    longest = int(counts[0]) if len(counts) else 0
    sizes = len(counts) - np.searchsorted(counts[::-1], np.arange(longest), "right")
    places = np.empty(int(counts.sum()), np.int64)
    at = 0
    for number, size in enumerate(sizes.tolist()):
        np.add(first[:size], number, out=places[at : at + size])
        at += size
    return Rounds(keys, sizes.tolist(), places)


def worthwhile(counts: Ints) -> int:
    """The most rows that a key may have to take part; 0 if lanes are not worth it at all."""
    if not len(counts):
        return 0
    tried, held = np.unique(counts, return_counts=True)
    alone = int(counts.sum()) - np.cumsum(tried * held)  # rows of keys with more
    cost = tried * ROUND_NS + alone * ROW_NS
    best = int(np.argmin(cost))
    return int(tried[best]) if cost[best] < int(counts.sum()) * ROW_NS else 0
