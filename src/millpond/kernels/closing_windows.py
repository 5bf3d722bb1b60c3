"""The windows that close in an epoch, from the slices that enter and leave them.

A window differs from the one before it by the slices that enter at its end and leave at its start.  So the
contents of a key's windows are a running sum of changes: the totals of the last closed window, plus each
slice from its first window on, minus it after its last one.

Law: an epoch costs these changes and the windows that it returns.  Time in which nothing changes costs
nothing, however many windows are in it, and a window without rows is not returned (laws 1 and 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millpond.kernels.accumulated import Accumulated, joined
from millpond.kernels.slices import Slicing

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NEVER = -(2**62)  # a position before all windows


@dataclass(frozen=True)
class KeySlices:
    """Slices of numbered keys, in any order; several may be parts of one slice."""

    key: Ints
    start: Ints
    sums: Accumulated


@dataclass(frozen=True)
class ClosedWindows:
    """Windows by *stretches*: windows of a key that follow each other and contain the same slices."""

    key: Ints  # of each stretch
    first: Ints  # the end of the first window of each stretch
    sums: Accumulated  # of each stretch
    stretch: Ints  # of each window
    end: Ints  # of each window
    still: Ints  # the stretches that contain the last window that closed


def closed_windows(
    slicing: Slicing, totals: KeySlices, stored: KeySlices, fresh: KeySlices, since: Ints, until: int
) -> ClosedWindows:
    """The windows that end after `since`, by key, up to `until`, and have rows.

    `totals` are the sums of the window `since` of keys that have rows in it, `stored` the slices that enter
    or leave, and `fresh` what this epoch adds: to windows that are still open, even if its slice is older.
    """
    step = slicing.step_us
    begin = since[totals.key] + step
    keys, ends, sums = [totals.key], [begin], [totals.sums]
    for part, enters_late in ((stored, False), (fresh, True)):
        enter, leave = slicing.first(part.start), slicing.last(part.start) + step
        before = since[part.key]
        if enters_late:
            enter = np.where(before > NEVER, np.maximum(enter, before + step), enter)
        entering = np.flatnonzero((enter > before) & (enter <= until) & (enter < leave))
        leaving = np.flatnonzero((leave > before) & (leave <= until))
        keys += [part.key[entering], part.key[leaving]]
        ends += [enter[entering], leave[leaving]]
        sums += [part.sums.take(entering), part.sums.take(leaving).negated()]
    key, end, changes = np.concatenate(keys), np.concatenate(ends), joined(sums)
    order = np.lexsort((end, key))
    key, end = key[order], end[order]
    fresh_pair = np.ones(len(key), np.bool_)
    fresh_pair[1:] = (key[1:] != key[:-1]) | (end[1:] != end[:-1])
    starts = np.flatnonzero(fresh_pair)
    key, end, changes = key[starts], end[starts], changes.take(order).combined(starts)
    fresh_key = np.ones(len(key), np.bool_)
    fresh_key[1:] = key[1:] != key[:-1]
    found = changes.running(np.flatnonzero(fresh_key))
    # A stretch lasts until the next one of its key.
    last = np.append(~fresh_key[1:], [False]) if len(key) else np.zeros(0, np.bool_)
    over = np.full(len(key), until + step, np.int64)
    over[last] = end[1:][last[:-1]]
    live = np.flatnonzero(found.rows > 0)
    count = (over[live] - end[live] + step - 1) // step
    window = np.repeat(end[live], count) + step * _numbers(count)
    still = np.flatnonzero((found.rows > 0) & ~last)
    return ClosedWindows(key, end, found, np.repeat(live, count), window, still)


def _numbers(count: Ints) -> Ints:
    """0, 1, 2, … for each count."""
    ends = np.cumsum(count)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)
