"""The live runs of the head: the earliest bucket is what looking at every run would say."""

from __future__ import annotations

import random

from millpond.state.manifest.manifest import run_id
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.live_runs import LiveRuns


def ref(number: int, bucket: int | None, table: str = "t") -> RunRef:
    return RunRef(table, f"runs/1/{number}", 0, bucket, 1, 1, number % 5, 100, 0, 2**64 - 1, "delta")


def test_the_earliest_bucket_of_a_table() -> None:
    live = LiveRuns([ref(1, 7), ref(2, None), ref(3, 5), ref(4, 2, "other"), ref(5, None, "plain")])
    assert live.earliest("t") == 5
    assert live.earliest("plain") is None
    assert live.earliest("nothing") is None
    live.change([ref(6, -3)], [])
    assert live.earliest("t") == -3
    live.change([], [run_id(ref(6, -3)), run_id(ref(3, 5))])
    assert live.earliest("t") == 7
    live.change([], [run_id(ref(1, 7))])
    assert live.earliest("t") is None
    live.change([ref(7, 7)], [])
    assert live.earliest("t") == 7


def test_the_earliest_bucket_whatever_comes_and_goes() -> None:
    rng = random.Random(7)
    live = LiveRuns()
    kept: dict[int, RunRef] = {}
    for number in range(3000):
        kept[number] = ref(number, rng.choice([None, *range(40)]))
        gone = rng.sample(sorted(kept), k=min(len(kept) - 1, rng.randrange(3)))
        # As a compaction does it: a bucket is emptied and filled in one change.
        live.change([kept[number]], [run_id(kept.pop(g)) for g in gone if g != number])
        if rng.random() < 0.5:
            waiting = [r for r in kept.values() if r.bucket is not None]
            assert live.earliest("t") == min((r.bucket for r in waiting), default=None)
            assert live.waiting == sum(r.rows for r in waiting)
    assert len(live._heaps["t"]) < 150, "the heap does not grow with history"
