"""Compaction: chooses which runs to merge, as a pure function of a listing.

A run has a content interval of epochs.  A merge replaces the runs of a contiguous interval in one bucket of a
table; it drops tombstones only if it covers the oldest interval.  A merge is divided into units by hash
range, which bounds the size of each.

Sizes grow by tiers: `FAN_IN` neighbours of one tier become one run of the next, so every row is rewritten a
logarithmic number of times (law 5, amortised).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millpond.state.runs.run_ref import RunRef

FAN_IN = 6
TIER_BYTES = 64 << 10  # all smaller runs are in one tier
UNIT_BYTES = 64 << 20  # a merge needs about six times as much memory
# the total size of merges of several tables that are done together and written into one file
SHARED_MERGE_BYTES = 8 << 20
SHARED_MERGE_TABLES = 64
LAST_HASH = (1 << 64) - 1


@dataclass(frozen=True)
class MergeJob:
    table: str
    bucket: int | None
    lo: int
    hi: int
    refs: tuple[RunRef, ...]
    drop_tombstones: bool
    units: tuple[tuple[int, int], ...]  # hash ranges, inclusive

    @property
    def bytes(self) -> int:
        return sum(r.bytes for r in self.refs)


def plan_merges(
    runs: Iterable[RunRef], *, fan_in: int = FAN_IN, unit_bytes: int = UNIT_BYTES, everything: bool = False
) -> list[MergeJob]:
    """The merges worth doing now, the most fragmented table first."""
    places: dict[tuple[str, int | None], list[RunRef]] = {}
    for ref in runs:
        places.setdefault((ref.table, ref.bucket), []).append(ref)
    jobs = []
    for (table, bucket), refs in sorted(places.items(), key=lambda p: (p[0][0], p[0][1] or 0)):
        if len(refs) < fan_in and not everything:
            continue
        groups = by_interval(refs)
        chosen_range = _full_range(groups) if everything else _newest_range(groups, fan_in)
        if chosen_range is None:
            continue
        chosen = [r for g in groups[chosen_range[0] : chosen_range[1]] for r in g]
        size = sum(r.bytes for r in chosen)
        jobs.append(
            MergeJob(
                table,
                bucket,
                min(r.lo for r in chosen),
                max(r.hi for r in chosen),
                tuple(chosen),
                chosen_range[0] == 0,
                cut_units(max(1, math.ceil(size / unit_bytes))),
            )
        )
    return sorted(jobs, key=lambda j: -len(j.refs))


def batch_with_first(jobs: Sequence[MergeJob]) -> tuple[MergeJob, ...]:
    """The merges to do together with the first: with many tables, one at a time would never catch up."""
    found: list[MergeJob] = []
    size = 0
    for job in jobs[:SHARED_MERGE_TABLES]:
        if len(job.units) > 1 or size + job.bytes > SHARED_MERGE_BYTES:
            break
        size += job.bytes
        found.append(job)
    return tuple(found[1:])


def by_interval(refs: Iterable[RunRef]) -> list[list[RunRef]]:
    """Groups of refs that cover the same epochs, oldest first."""
    groups: dict[tuple[int, int], list[RunRef]] = {}
    for ref in refs:
        groups.setdefault((ref.lo, ref.hi), []).append(ref)
    return [groups[k] for k in sorted(groups)]


def tier(size: int) -> int:
    return 0 if size <= TIER_BYTES else 1 + int(math.log(size / TIER_BYTES, 4))


def _full_range(groups: list[list[RunRef]]) -> tuple[int, int] | None:
    return (0, len(groups)) if len(groups) > 1 else None


def _newest_range(groups: list[list[RunRef]], fan_in: int) -> tuple[int, int] | None:
    """The newest range of at least `fan_in` neighbours of which `fan_in` are within a tier of the largest."""
    tiers = [tier(sum(r.bytes for r in g)) for g in groups]
    end = len(groups)
    start = end
    highest = -1
    best = None
    while start > 0:
        start -= 1
        highest = max(highest, tiers[start])
        neighbours = tiers[start:end]
        if len(neighbours) >= fan_in and sum(1 for t in neighbours if t >= highest - 1) >= fan_in:
            best = (start, end)
    return best


def cut_units(count: int) -> tuple[tuple[int, int], ...]:
    return tuple(unit(number, count) for number in range(count))


def unit(number: int, count: int) -> tuple[int, int]:
    """One of `count` equal hash ranges, inclusive."""
    edges = ((LAST_HASH + 1) * i // count for i in (number, number + 1))
    return next(edges), next(edges) - 1
