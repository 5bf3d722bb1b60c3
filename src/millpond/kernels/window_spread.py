"""What groups of rows add to each of their windows, where the windows of a group follow each other.

A group is in the windows from its first to its last one.  So what a key adds to its windows is a running sum:
each group from its first window on, minus it after its last one.  An extreme cannot be taken back, so it is
the best of the groups that contain the window.

Law: the result is that of repeating each group for every window of it and adding up equal windows.  It costs
the groups and the windows that are returned, not the pairs of both (law 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.identity import take
from millpond.kernels.accumulated import Accumulated, joined
from millpond.kernels.accumulators import Accumulator, Extremum, Fields, Invertible
from millpond.kernels.range_extremes import best_of_ranges

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WindowParts:
    """What each window gets: the groups of one *stretch*, windows of a key that contain the same groups."""

    group: Ints  # of each window: one of its groups
    start: Ints  # of each window
    fields: tuple[Fields, ...]  # of each window, by accumulator
    rows: Ints


def can_spread(kinds: Sequence[Accumulator | None]) -> bool:
    return all(kind is None or isinstance(kind, Invertible | Extremum) for kind in kinds)


def spread(key: Ints, first: Ints, last: Ints, step: int, given: Accumulated) -> WindowParts:
    """The windows of numbered keys, from the starts of the first and the last window of each group.

    Of two groups of a key with different last windows, the one with the later has no earlier first one.
    """
    linear = given.only([kind if isinstance(kind, Invertible) else None for kind in given.kinds])
    keys, ends = np.concatenate([key, key]), np.concatenate([first, last + step])
    covers = np.repeat([1, -1], len(key))
    order = np.lexsort((ends, keys))
    keys, ends = keys[order], ends[order]
    fresh = np.ones(len(keys), np.bool_)
    fresh[1:] = (keys[1:] != keys[:-1]) | (ends[1:] != ends[:-1])
    starts = np.flatnonzero(fresh)
    changes = joined([linear, linear.negated()]).take(order).combined(starts)
    keys, ends = keys[starts], ends[starts]
    fresh_key = np.ones(len(keys), np.bool_)
    fresh_key[1:] = keys[1:] != keys[:-1]
    sums = changes.running(np.flatnonzero(fresh_key))
    # The groups of a key all end, so the count of those that go on is 0 where the next key begins.
    live = np.flatnonzero(np.cumsum(np.add.reduceat(covers[order], starts)))
    count = (ends[live + 1] - ends[live]) // step
    stretch = np.repeat(np.arange(len(live)), count)
    back = np.arange(len(stretch)) - np.repeat(np.cumsum(count) - count, count)
    found = sums.take(live)
    by_time = np.lexsort((first, last, key))
    low, high = _contained(key[by_time], first[by_time], last[by_time], keys[live], ends[live])
    fields = [dict(one) for one in found.fields]
    for number, kind in enumerate(given.kinds):
        if isinstance(kind, Extremum):
            values = take(given.fields[number]["value"], by_time)
            fields[number] = {"value": best_of_ranges(values, low, high, largest=kind.largest)}
    windows = tuple({name: _taken(values, stretch) for name, values in one.items()} for one in fields)
    return WindowParts(by_time[low][stretch], ends[live][stretch] + back * step, windows, found.rows[stretch])


def _contained(key: Ints, first: Ints, last: Ints, of: Ints, at: Ints) -> tuple[Ints, Ints]:
    """The groups of a key that contain the window that starts at a time: from low to high (exclusive).

    Groups are sorted by key and time.
    """
    times = np.unique(np.concatenate([first, last, at]))
    width = len(times) + 1
    place = of * width + np.searchsorted(times, at)
    low = np.searchsorted(key * width + np.searchsorted(times, last), place)
    high = np.searchsorted(key * width + np.searchsorted(times, first), place, side="right")
    return low, high


def _taken(values: Ints | pa.Array, which: Ints) -> Ints | pa.Array:
    return values[which] if isinstance(values, np.ndarray) else take(values, which)


def repeated(first: Ints, last: Ints, step: int) -> tuple[Ints, Ints]:
    """(number of the group, start of the window) for each window of each group."""
    count = (last - first) // step + 1
    group = np.repeat(np.arange(len(first)), count)
    back = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
    return group, first[group] + back * step


def partial_columns(parts: WindowParts) -> Mapping[str, Ints | pa.Array]:
    """The columns of partial rows that are not zero everywhere, as `Accumulated.columns` names them."""
    found: dict[str, Ints | pa.Array] = {"_n": parts.rows}
    for number, fields in enumerate(parts.fields):
        for name, values in fields.items():
            if not isinstance(values, np.ndarray) or values.any():
                found[f"_a{number}_{name}"] = values
    return found
