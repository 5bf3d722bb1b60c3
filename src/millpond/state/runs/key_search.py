"""Finds the rows of keys in runs, by comparing keys.

Law: a hash only selects candidates; the key columns of every candidate row are compared (`Segment.find`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.state.runs import read_ahead
from millpond.state.runs.merge import OpenFile
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import Segment

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class KeyRanges:
    """The rows of keys in one run: key number key[i] has the rows [lo[i], hi[i])."""

    ref: RunRef
    segment: Segment
    key: Ints
    lo: Ints
    hi: Ints

    def some(self, which: Bools | Ints) -> KeyRanges:
        return replace(self, key=self.key[which], lo=self.lo[which], hi=self.hi[which])


def all_rows(
    runs: Sequence[RunRef],
    open_file: OpenFile,
    hashes: Hashes,
    key: Mapping[str, pa.Array],
    within: tuple[int, int],
) -> list[KeyRanges]:
    """The ranges of all rows of the keys, in the order of the runs; `hashes` are sorted."""
    if not len(hashes):
        return []
    low, high = int(hashes[0]), int(hashes[-1])
    _fetch_ahead([ref for ref in runs if ref.meets(low, high)], open_file, hashes, key, within)
    searched = (_search(ref, open_file, hashes, key, within, None) for ref in runs if ref.meets(low, high))
    return [ranges for ranges in searched if len(ranges.key)]


def newest_rows(
    runs: Sequence[RunRef],
    open_file: OpenFile,
    hashes: Hashes,
    key: Mapping[str, pa.Array],
    within: tuple[int, int],
) -> list[KeyRanges]:
    """The ranges of the newest rows of the keys; runs are newest first.

    A key that is found is not searched again in older runs of the same time bucket.
    """
    if not len(hashes):
        return []
    low, high = int(hashes[0]), int(hashes[-1])
    _fetch_ahead([ref for ref in runs if ref.meets(low, high)], open_file, hashes, key, within)
    missing: dict[int | None, Ints | None] = {}  # by bucket: the keys not found yet; None is all
    newest = []
    for ref in runs:
        which = missing.get(ref.bucket)
        if not ref.meets(low, high) or (which is not None and not len(which)):
            continue
        ranges = _search(ref, open_file, hashes, key, within, which)
        if len(ranges.key):
            newest.append(ranges)
            left = np.ones(len(hashes), np.bool_)
            left[ranges.key] = False
            missing[ref.bucket] = np.flatnonzero(left) if which is None else which[left[which]]
    return newest


def _fetch_ahead(
    runs: Sequence[RunRef],
    open_file: OpenFile,
    hashes: Hashes,
    key: Mapping[str, pa.Array],
    within: tuple[int, int],
) -> None:
    def search(segment: Segment, start: int, stop: int) -> None:
        segment.find(hashes[start:stop], np.arange(start, stop), key)

    read_ahead.fetch_searched(runs, open_file, hashes, within, search)


def _search(
    ref: RunRef,
    open_file: OpenFile,
    hashes: Hashes,
    key: Mapping[str, pa.Array],
    within: tuple[int, int],
    which: Ints | None,
) -> KeyRanges:
    """Search one run for some of the keys; for all if `which` is None."""
    wanted = hashes if which is None else hashes[which]
    edges = np.array([max(ref.h_min, within[0]), min(ref.h_max, within[1])], np.uint64)
    start = int(np.searchsorted(wanted, edges[0], "left"))
    stop = int(np.searchsorted(wanted, edges[1], "right"))
    segment = open_file(ref.file).segment(ref.segment)
    if stop <= start:
        nothing = np.empty(0, np.int64)
        return KeyRanges(ref, segment, nothing, nothing, nothing)
    numbers = np.arange(start, stop) if which is None else which[start:stop]
    return KeyRanges(ref, segment, *segment.find(wanted[start:stop], numbers, key))
