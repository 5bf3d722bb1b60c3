"""Fetches what a lookup is about to read from large remote files, of all runs and columns at the same time.

A lookup searches run by run and then reads column by column; of a file that is not cached, each of these
would be a round trip.  So the searches of all runs are made ahead, at the same time, and then the reads of
all columns.  For cached files nothing is fetched.

Law 4: nothing depends on it.  What was not fetched ahead is fetched when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from millpond.delta import WEIGHT
from millpond.state.runs.merge import OpenFile
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import Segment

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
T = TypeVar("T")

JOBS_AT_ONCE = 32


def fetch_searched(
    runs: Iterable[RunRef],
    open_file: OpenFile,
    hashes: Hashes,
    within: tuple[int, int],
    search: Callable[[Segment, int, int], object],
) -> None:
    """Search these sorted hashes in all runs whose bytes may be absent.

    `search` is called with a segment and the range of the hashes that it may have.
    """
    partial = [ref for ref in runs if open_file(ref.file).is_partial]
    if not partial:
        return

    def job(ref: RunRef) -> None:
        start = int(np.searchsorted(hashes, np.uint64(max(ref.h_min, within[0])), "left"))
        stop = int(np.searchsorted(hashes, np.uint64(min(ref.h_max, within[1])), "right"))
        if stop > start:
            segment = open_file(ref.file).segment(ref.segment)
            if segment.lacks_hashes(hashes[start:stop]):
                search(segment, start, stop)

    _run(job, partial)


def fetch_rows(found: Iterable[tuple[Segment, Ints]], names: Sequence[str]) -> None:
    """Read these columns, and the weights, of rows whose bytes may be absent."""
    jobs = [
        (segment, name, rows)
        for segment, rows in found
        if segment.is_partial and len(rows)
        for name in dict.fromkeys([*names, WEIGHT])
        if segment.stores(name)
    ]
    _run(lambda job: job[0].take(job[1], job[2]), jobs)


def _run(call: Callable[[T], object], jobs: Sequence[T]) -> None:
    if len(jobs) == 1:
        call(jobs[0])
    elif jobs:
        with ThreadPoolExecutor(min(JOBS_AT_ONCE, len(jobs)), "millpond-ahead") as pool:
            for _ in pool.map(call, jobs):
                pass
