"""Which runs are merged: neighbours in time, alike in size, each row a logarithmic number of times."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.state.runs.compaction import (
    LAST_HASH,
    SHARED_MERGE_BYTES,
    SHARED_MERGE_TABLES,
    TIER_BYTES,
    MergeJob,
    batch_with_first,
    by_interval,
    cut_units,
    plan_merges,
    tier,
)
from millpond.state.runs.run_ref import RunRef


def ref(lo: int, hi: int | None = None, size: int = 100, table: str = "t", **facts: Any) -> RunRef:
    end = lo if hi is None else hi
    base: dict[str, Any] = {"segment": 0, "bucket": None, "h_min": 0, "h_max": LAST_HASH, "kind": "delta"}
    name = f"runs/{table}-{lo}-{end}-{facts.get('h_min', 0)}"
    return RunRef(table=table, file=name, lo=lo, hi=end, rows=1, bytes=size, **{**base, **facts})


def test_few_runs_are_left_alone() -> None:
    assert plan_merges([ref(n) for n in range(1, 6)], fan_in=6) == []
    assert plan_merges([]) == []


def test_enough_neighbours_of_one_size_are_merged() -> None:
    (job,) = plan_merges([ref(n) for n in range(1, 7)], fan_in=6)
    assert (job.table, job.bucket, job.lo, job.hi) == ("t", None, 1, 6)
    assert [r.lo for r in job.refs] == [1, 2, 3, 4, 5, 6]
    assert job.units == ((0, LAST_HASH),)
    assert job.bytes == 600


def test_tombstones_go_only_with_the_oldest_interval() -> None:
    big = ref(0, 9, size=64 << 20)
    (job,) = plan_merges([big, *[ref(n) for n in range(10, 16)]], fan_in=6)
    assert (job.lo, job.hi, job.drop_tombstones) == (10, 15, False)
    (job,) = plan_merges([ref(n) for n in range(10, 16)], fan_in=6)
    assert job.drop_tombstones


def test_a_large_run_is_not_rewritten_for_small_ones() -> None:
    runs = [ref(0, 9, size=64 << 20), *[ref(n) for n in range(10, 15)]]
    assert plan_merges(runs, fan_in=6) == []


def test_runs_of_one_interval_are_one_group() -> None:
    """Four tasks of one epoch wrote four files: together they are one run."""
    parts = [ref(n, h_min=part) for n in range(1, 5) for part in range(4)]
    assert [len(g) for g in by_interval(parts)] == [4, 4, 4, 4]
    assert plan_merges(parts, fan_in=6) == []
    (job,) = plan_merges(parts, fan_in=4)
    assert len(job.refs) == 16


def test_tables_and_buckets_are_apart_and_the_most_fragmented_comes_first() -> None:
    runs = [ref(n, bucket=b, table=t) for t in "ab" for b in (None, 1, 2) for n in range(1, 4)]
    runs += [ref(n, bucket=2, table="b") for n in range(4, 9)]
    jobs = plan_merges(runs, fan_in=3)
    assert (jobs[0].table, jobs[0].bucket, len(jobs[0].refs)) == ("b", 2, 8)
    assert len(jobs) == 6
    for job in jobs:
        assert {(r.table, r.bucket) for r in job.refs} == {(job.table, job.bucket)}


def test_everything_means_one_run_a_place() -> None:
    runs = [ref(0, 9, size=64 << 20), ref(10), ref(11, table="u")]
    (job,) = plan_merges(runs, everything=True)
    assert (job.table, job.lo, job.hi, job.drop_tombstones) == ("t", 0, 10, True)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_units_cover_every_hash_once(count: int) -> None:
    units = cut_units(count)
    assert len(units) == count
    assert (units[0][0], units[-1][1]) == (0, LAST_HASH)
    assert all(b[0] == a[1] + 1 for a, b in pairwise(units))
    assert all(lo <= hi for lo, hi in units)


def test_units_stay_bounded() -> None:
    (job,) = plan_merges([ref(n, size=100 << 20) for n in range(1, 7)], fan_in=6, unit_bytes=256 << 20)
    assert len(job.units) == 3


def test_tiers_grow_with_size() -> None:
    assert [tier(s) for s in (0, 1, TIER_BYTES, TIER_BYTES + 1, 5 * TIER_BYTES, 17 * TIER_BYTES)] == [
        0, 0, 0, 1, 2, 3,
    ]  # fmt: skip


def merged(runs: list[RunRef], job: MergeJob) -> list[RunRef]:
    left = [r for r in runs if r not in job.refs]
    return [*left, ref(job.lo, job.hi, size=job.bytes, kind="merge")]


def overlaps(runs: list[RunRef]) -> bool:
    spans = sorted((r.lo, r.hi) for r in runs)
    return any(a[1] >= b[0] for a, b in pairwise(spans))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=150), st.integers(2, 8))
def test_a_merge_is_a_contiguous_stretch_and_the_plan_comes_to_rest(sizes: list[int], fan_in: int) -> None:
    runs: list[RunRef] = []
    for epoch, size in enumerate(sizes, 1):
        runs.append(ref(epoch, size=size))
        turns = 0
        while jobs := plan_merges(runs, fan_in=fan_in):
            (job,) = jobs
            inside = [r for r in runs if job.lo <= r.lo and r.hi <= job.hi]
            assert sorted(inside, key=str) == sorted(job.refs, key=str)
            assert len(job.refs) >= 2
            runs = merged(runs, job)
            turns += 1
            assert turns < 50, "a plan that never ends"
        assert not overlaps(runs)
        assert sum(r.bytes for r in runs) == sum(sizes[:epoch])


@pytest.mark.parametrize("fan_in", [4, 6])
def test_a_row_is_rewritten_a_logarithmic_number_of_times(fan_in: int) -> None:
    """Law 5, amortised: bytes written by merges over bytes that came in, and the runs that stay."""
    size, count = 20_000, 3000
    runs: list[RunRef] = []
    written = 0
    most = 0
    for epoch in range(1, count + 1):
        runs.append(ref(epoch, size=size))
        for job in plan_merges(runs, fan_in=fan_in):
            written += job.bytes
            runs = merged(runs, job)
        most = max(most, len(runs))
    tiers = math.log(size * count / TIER_BYTES, 4)
    assert written / (size * count) < 2.5 * tiers
    assert most < fan_in * (tiers + 2)


def test_small_merges_are_done_together_up_to_a_bound() -> None:
    def job(table: str, size: int, units: int = 1) -> MergeJob:
        return MergeJob(
            table, None, 1, 2, (ref(1, size=size // 2), ref(2, size=size // 2)), True, cut_units(units)
        )

    small = [job(f"t{n}", 1000) for n in range(100)]
    assert batch_with_first(small) == tuple(small[1:SHARED_MERGE_TABLES])
    assert batch_with_first([job("large", SHARED_MERGE_BYTES + 2), *small]) == ()
    assert batch_with_first([small[0], job("large", SHARED_MERGE_BYTES), small[1]]) == ()
    assert batch_with_first([job("cut", 1000, units=2), *small]) == ()
    assert batch_with_first([]) == ()
