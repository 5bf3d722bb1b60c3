"""Strategies: slack by rows, a learnt percentile, and a user's function, for any parallelism (law 3)."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import InvalidError, MillpondError
from millpond.kernels.watermark_strategies import delays, quantile_us, summed
from millpond.plan import codec
from millpond.sources.memory import MemorySource
from millpond.watermarks import announced, bounded, custom, inherited, monotonous, percentile, slack
from tests.sampling import first
from tests.unit.engine.test_watermark_partitions import SCHEMA, SECOND, bound, late, opened, rows


def test_slack_is_the_time_that_more_than_so_many_rows_have_passed(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path, parallelism=2) as pond:
        pond.stream("s", source, event_time="at", delay=slack(rows=2)).view("v")
        source.push(rows(5, 1))
        pond.drain()
        assert bound(pond) is None  # two rows may overtake any other
        source.push(rows(9), rows(7, 3))
        pond.drain()
        assert bound(pond) == 5  # 9 and 7 have overtaken it; a third would be too much for an older row
        source.push(rows(4, 5))
        pond.drain()
        assert late(pond) == 1


def test_slack_of_fewer_rows_reads_what_more_rows_left() -> None:
    """The strategy of a watermark may change: its entry in the manifest is that of the one before."""
    entry = slack(rows=4).summary(np.array([5, 9, 1, 7, 3, 8]))  # type: ignore[union-attr]
    assert entry == {"max": 9, "top": [9, 8, 7, 5, 3]}
    assert slack(rows=2).bound(entry, 0) == 7
    assert slack(rows=4).bound(entry, 0) == 3
    assert slack(rows=5).bound(entry, 0) is None


def test_a_percentile_is_not_exceeded_by_at_least_that_share_of_the_rows() -> None:
    some = {"0": 1, "2": 1, "3": 1}
    assert [quantile_us(some, share) for share in (0.33, 0.34, 0.5, 0.66, 0.67, 1.0)] == [
        0,
        2000,
        2000,
        2000,
        3000,
        3000,
    ]
    assert quantile_us({}, 0.5) == 0


def test_monotonous_means_no_delay(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        pond.stream("s", source, event_time="at", delay=monotonous()).view("v")
        source.push(rows(5, 9))
        pond.drain()
        assert bound(pond) == 9


def test_a_percentile_learns_how_late_rows_come(tmp_path: Path) -> None:
    draw, source = random.Random(7), MemorySource(SCHEMA)
    with opened(tmp_path, parallelism=2) as pond:
        pond.stream("s", source, event_time="at", delay=percentile(0.95)).view("v")
        newest, behind = 0, []
        for epoch in range(20):
            times = [epoch * 100 + n - draw.choice([0, 0, 0, 1, 8]) for n in range(10, 110)]
            for time in times:
                newest = max(newest, time)
                behind.append(newest - time)
            source.push(rows(*times))
            pond.drain()
        state = pond.head().watermarks["s.watermark"]
        waits = (state["max"] - state["bound"]) / SECOND
        exact = sorted(behind)[1899]  # 95 of 100 rows are at most so late
        assert exact <= waits <= exact * 9 / 8 + 0.001
        assert late(pond) <= 0.05 * 2000
        assert sum(summed(state["delays"]["now"], state["delays"]["before"]).values()) == 2000


def test_what_is_learnt_is_forgotten_after_two_windows(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        pond.stream("s", source, event_time="at", delay=percentile(1.0, window="100s")).view("v")
        source.push(rows(50, 10))
        pond.drain()
        assert bound(pond) == pytest.approx(10, abs=5)
        for start in (200, 400, 600):
            source.push(rows(start, start + 1))
            pond.drain()
        assert bound(pond) == 601


def test_a_custom_function_gets_the_rows_of_each_partition_in_order(tmp_path: Path) -> None:
    def third_newest(batch: Any, state: list[int] | None) -> tuple[int | None, list[int]]:
        seen = [*(state or []), *batch["v"].to_pylist()]
        times = batch["at"].cast("int64").to_pylist()
        return (times[0] if len(seen) > 2 else None), seen

    found = []
    for parallelism in (1, 2, 4):
        source = MemorySource(SCHEMA)
        with opened(tmp_path / str(parallelism), parallelism=parallelism) as pond:
            pond.stream("s", source, event_time="at", delay=custom(third_newest)).view("v")
            for start in (10, 20, 30):
                for part in ("a", "b"):
                    source.push(rows(start, start + 1), rows(start + 2), partition=part)
                pond.drain()
            assert bound(pond) == 30
            states = pond.head().watermarks["s.watermark"]["scans"]["s"]["parts"]
            assert states["a"]["state"] == [0, 1, 0] * 3
            found.append(pond.head().watermarks)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda b, s: 5, "returns"),
        (lambda b, s: (None, {1, 2}), "JSON"),
        (lambda b, s: ("x", 1), "not a time"),
    ],
)
def test_what_a_function_may_not_return(tmp_path: Path, function: Any, message: str) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        pond.stream("s", source, event_time="at", delay=custom(function)).view("v")
        source.push(rows(1))
        with pytest.raises(MillpondError, match=message):
            pond.drain()


def test_a_custom_watermark_behind_a_stateful_step_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as pond:
        stream = pond.stream("s", MemorySource(SCHEMA))
        other = pond.stream("t", MemorySource(SCHEMA)).select(v="v", w="v")
        joined = stream.join(other, on="v")
        with pytest.raises(InvalidError, match="straight from sources"):
            joined.watermark("at", custom(lambda b, s: (None, None)))


@pytest.mark.parametrize("seed", first(1, range(3)))
@pytest.mark.parametrize("strategy", [slack(5), percentile(0.9, window="60s"), bounded("3s")])
def test_random_partitions_settle_the_same_for_every_parallelism(
    tmp_path: Path, strategy: Any, seed: int
) -> None:
    script: list[list[tuple[str, list[int]]]] = []
    draw, clocks = random.Random(seed), dict.fromkeys("abc", 0)
    for _ in range(5):
        batches = []
        for part in draw.choices(sorted(clocks), k=draw.randrange(1, 7)):
            clocks[part] += draw.randrange(20)
            batches.append((part, [max(0, clocks[part] - draw.randrange(15)) for _ in range(8)]))
        script.append(batches)
    results = []
    for parallelism in (1, 2, 3, 4):
        source, found, last = MemorySource(SCHEMA), [], None
        with opened(tmp_path / str(parallelism), parallelism=parallelism) as pond:
            pond.stream("s", source, event_time="at", delay=strategy).view("v")
            for batches in script:
                for part, times in batches:
                    source.push(rows(*times), partition=part)
                pond.drain()
                now = bound(pond)
                assert last is None or (now is not None and now >= last)
                last = now
                found.append((pond.head().watermarks, late(pond)))
            assert pond.replay(pond.head().epoch).same
        results.append(found)
    assert all(found == results[0] for found in results)


def test_histograms_add_up_and_quantiles_are_at_most_an_eighth_too_large() -> None:
    draw = np.random.default_rng(3)
    behind = draw.integers(0, 10**8, 5000)
    parts = summed(*(delays(part) for part in np.array_split(behind, 7)))
    assert parts == delays(behind)
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        exact = int(np.sort(behind)[max(0, int(np.ceil(share * 5000)) - 1)])
        assert exact <= quantile_us(parts, share) <= exact * 9 / 8 + 2000


def test_a_step_that_learns_can_be_asked_for_a_share(tmp_path: Path) -> None:
    from millpond.engine.task import watermarks
    from millpond.operators.watermark import Watermark

    source = MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        stream = pond.stream("s", source)
        stream._then("w", replace(Watermark("at", 60 * SECOND), learns=True), "watermark").view("v")
        source.push(rows(*range(100), 95))
        pond.drain()
        marks = pond.head().watermarks
        assert watermarks.bound(marks, "w") == 39 * SECOND
        assert watermarks.bound_at(marks, "w", 0.9) == 99 * SECOND  # nine in ten were in order
        assert watermarks.bound_at(marks, "w", 1.0) == pytest.approx(95 * SECOND, abs=SECOND // 2)
        assert watermarks.bound_at(marks, "x", 1.0) is None


@pytest.mark.parametrize("strategy", [bounded("3s"), slack(5), percentile(0.9), inherited()])
def test_strategies_are_stored_and_come_back(strategy: Any) -> None:
    assert codec.loads(codec.dumps(strategy)) == strategy


@pytest.mark.parametrize(
    "make", [lambda: slack(-1), lambda: slack(10**6), lambda: percentile(0), lambda: percentile(0.5, "0s")]
)
def test_wrong_strategies_are_refused(make: Any) -> None:
    with pytest.raises(InvalidError):
        make()


@pytest.mark.parametrize("strategy", ["custom", "percentile", "slack"])
def test_what_a_strategy_remembers_survives_a_restart_a_rollback_and_a_fork(
    tmp_path: Path, strategy: str
) -> None:
    def third(batch: Any, seen: int | None) -> tuple[int | None, int]:
        after = (seen or 0) + batch.num_rows
        newest = max(batch["at"].cast("int64").to_pylist())
        return (newest if after >= 3 else None), after

    delay = {"custom": custom(third), "percentile": percentile(1.0), "slack": slack(2)}[strategy]
    source = MemorySource(SCHEMA)

    def define(path: Path) -> Any:
        pond = opened(path)
        pond.stream("s", source, event_time="at", delay=delay).view("v")
        return pond

    with define(tmp_path / "one") as pond:
        for second in (10, 12):
            source.push(rows(second, second - 1))
            pond.drain()
        before, epoch = pond.head().watermarks, pond.head().epoch
    with define(tmp_path / "one") as pond:
        source.push(rows(20))
        pond.drain()
        after = pond.head().watermarks
        pond.fork(tmp_path / "two", epoch=epoch)
        pond.rollback(epoch)
        assert pond.head().watermarks == before
        pond.drain()
        assert pond.head().watermarks == after
    with define(tmp_path / "two") as pond:
        assert pond.head().watermarks == before
        pond.drain()
        assert pond.head().watermarks == after
    assert after["s.watermark"]["bound"] is not None


def test_rows_announce_how_far_their_partition_has_come(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("complete", pa.timestamp("us"))])
    source = MemorySource(schema)
    with opened(tmp_path, parallelism=2) as pond:
        pond.stream("s", source, event_time="at", delay=announced("complete")).view("v")
        source.push([{"at": 9, "v": 1, "complete": None}], partition="a")
        pond.drain()
        assert bound(pond) is None
        source.push([{"at": 50 * SECOND, "v": 1, "complete": 40 * SECOND}], partition="a")
        source.push([{"at": 51 * SECOND, "v": 1, "complete": 30 * SECOND}], partition="b")
        source.push([{"at": 52 * SECOND, "v": 1, "complete": 20 * SECOND}], partition="b")
        pond.drain()
        assert bound(pond) == 30
        assert codec.loads(codec.dumps(announced("complete"))) == announced("complete")
