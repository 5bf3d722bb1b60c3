"""What moves watermarks besides rows: idleness, promises, punctuations; and what holds sources back."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import Pond
from millpond.clock import ManualClock
from millpond.errors import InvalidError
from millpond.sources.files import FileSource
from millpond.sources.memory import EventTimeBound, MemorySource
from tests.sampling import first
from tests.unit.engine.test_watermark_partitions import SCHEMA, SECOND, bound, late, rows, write

END = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)


def opened(path: Path, clock: ManualClock | None = None, **settings: Any) -> Pond:
    return millpond.open(path, engine="inline", durable=False, clock=clock or ManualClock(0), **settings)


def closed(pond: Pond, view: str = "closed") -> list[int]:
    return sorted(pond.read(view).column("n").to_pylist())


def windows(stream: Any, view: str = "closed") -> None:
    stream.tumble("10s").key_by("window_end").aggregate(on_close=True, n="count(*)").view(view)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_idle_partition_no_longer_holds_the_watermark(tmp_path: Path, parallelism: int) -> None:
    source, clock = MemorySource(SCHEMA), ManualClock(0)
    with opened(tmp_path, clock, parallelism=parallelism) as pond:
        windows(pond.stream("s", source, event_time="at", delay="0s", idle="30s"))
        source.push(rows(5), partition="a")
        source.push(rows(6), partition="b")
        pond.drain()
        clock.advance(20 * SECOND)
        source.push(rows(50), partition="a")
        pond.drain()
        assert (bound(pond), closed(pond)) == (6, [])
        epoch = pond.head().epoch
        pond.drain()
        assert pond.head().epoch == epoch  # not idle yet
    clock.advance(10 * SECOND)  # 30 s since the last row of b, over a restart
    with opened(tmp_path, clock, parallelism=parallelism) as pond:
        windows(pond.stream("s", source, event_time="at", delay="0s", idle="30s"))
        pond.drain()
        assert (bound(pond), closed(pond)) == (50, [2])
        epoch = pond.head().epoch
        assert pond.replay(epoch).same
        pond.drain()
        assert pond.head().epoch == epoch  # that b is idle is recorded once
        source.push(rows(7, 51), partition="b")
        source.push(rows(90), partition="a")
        pond.drain()
        assert (late(pond), bound(pond)) == (1, 51)  # b is active again, and what it missed is late


def test_all_partitions_idle_means_the_latest_of_them(tmp_path: Path) -> None:
    source, clock = MemorySource(SCHEMA), ManualClock(0)
    with opened(tmp_path, clock) as pond:
        pond.stream("s", source, event_time="at", delay="0s", idle="30s").view("v")
        source.push(rows(5), partition="a")
        source.push(rows(70), partition="b")
        pond.drain()
        clock.advance(30 * SECOND)
        pond.drain()
        assert bound(pond) == 70


@pytest.mark.parametrize("ever", ["never sent a row", "sent one"])
def test_an_idle_source_does_not_stop_the_windows_of_a_union(tmp_path: Path, ever: str) -> None:
    one, two, clock = MemorySource(SCHEMA), MemorySource(SCHEMA), ManualClock(0)
    with opened(tmp_path, clock, parallelism=2) as pond:
        first = pond.stream("one", one, event_time="at", delay="0s", idle="30s")
        second = pond.stream("two", two, event_time="at", delay="0s", idle="30s")
        windows(first.union(second))
        one.push(rows(5, 50))
        if ever == "sent one":
            two.push(rows(6))
        pond.drain()
        assert closed(pond) == []
        clock.advance(29 * SECOND)
        one.push(rows(61))
        pond.drain()
        clock.advance(SECOND)
        pond.drain()
        assert closed(pond) == [1, 1] if ever != "sent one" else [1, 2]
        assert bound(pond, "two.watermark") == 61  # it follows the other one
        two.push(rows(20, 61))
        pond.drain()
        assert late(pond, "two.watermark") == 1  # its window is closed
        one.push(rows(75))
        pond.drain()
        assert len(closed(pond)) == 2  # the second source is active again


def test_windows_of_an_idle_source_close_when_another_one_moves_its_watermark(tmp_path: Path) -> None:
    """They are not behind the source that sends rows, and in deeper levels than what is."""
    one, two, clock = MemorySource(SCHEMA), MemorySource(SCHEMA), ManualClock(0)
    with opened(tmp_path, clock) as pond:
        first = pond.stream("one", one, event_time="at", delay="0s", idle="30s")
        second = pond.stream("two", two, event_time="at", delay="0s", idle="30s")
        first.union(second).view("all")
        windows(first)
        first.tumble("20s").key_by("window_end").aggregate(on_close=True, n="count(*)").key_by("n").aggregate(
            windows="count(*)"
        ).view("deeper")
        one.push(rows(5))
        two.push(rows(6))
        pond.drain()
        clock.advance(30 * SECOND)
        pond.drain()
        assert closed(pond) == []
        two.push(rows(61))
        pond.drain()
        assert (bound(pond, "one.watermark"), closed(pond)) == (61, [1])
        assert pond.read("deeper").to_pylist() == [{"n": 1, "windows": 1}]


def test_windows_hear_a_watermark_that_is_set_in_a_later_level(tmp_path: Path) -> None:
    """The watermark of an idle source follows one that is set behind an exchange."""
    one, two, clock = MemorySource(SCHEMA), MemorySource(SCHEMA), ManualClock(0)
    with opened(tmp_path, clock, parallelism=2) as pond:
        first = pond.stream("one", one, event_time="at", delay="0s", idle="30s")
        second = pond.stream("two", two, event_time="at", delay="0s").tumble("1s").key_by("window_end")
        seconds = second.aggregate(on_close=True, v="count(*)").select(at="window_end", v="v")
        first.union(seconds.watermark("at", "0s", idle="30s", id="behind")).view("all")
        windows(first)
        one.push(rows(5))
        two.push(rows(5, 7))
        pond.drain()
        clock.advance(30 * SECOND)
        two.push(rows(60, 70))
        pond.drain()
        assert (bound(pond, "one.watermark"), closed(pond)) == (61, [1])
        assert pond.replay(pond.head().epoch).same


def test_idle_watermarks_follow_each_other_over_several_unions(tmp_path: Path) -> None:
    """The third source meets only the second one, which is idle and follows the first, in the same epoch."""
    sources, clock = [MemorySource(SCHEMA) for _ in range(4)], ManualClock(0)
    with opened(tmp_path, clock, parallelism=2) as pond:
        streams = [
            pond.stream(f"s{n}", source, event_time="at", delay="0s", idle="30s")
            for n, source in enumerate(sources)
        ]
        for n in (2, 1, 0):  # not in the order in which they follow
            streams[n].union(streams[n + 1]).view(f"both_{n}")
        windows(streams[3])
        for source in sources:
            source.push(rows(5))
        pond.drain()
        clock.advance(30 * SECOND)
        sources[0].push(rows(70))
        epoch = pond.head().epoch
        pond.drain()
        assert pond.head().epoch == epoch + 1
        assert [bound(pond, f"s{n}.watermark") for n in range(4)] == [70] * 4
        assert closed(pond) == [1]
        assert pond.replay(pond.head().epoch).same


def test_a_watermark_behind_windows_that_wait_for_it_is_heard_an_epoch_later(tmp_path: Path) -> None:
    """The windows of the first source are computed before the rows that move the watermark behind them."""
    one, two, clock = MemorySource(SCHEMA), MemorySource(SCHEMA), ManualClock(0)
    with opened(tmp_path, clock, parallelism=2) as pond:
        first = pond.stream("one", one, event_time="at", delay="0s", idle="30s")
        ended = first.tumble("10s").key_by("window_end").aggregate(on_close=True, n="count(*)")
        ended.view("closed")
        both = ended.select(at="window_end", v="n").union(pond.stream("two", two).select(at="at", v="v"))
        first.union(both.watermark("at", "0s", idle="30s", id="behind")).view("all")
        one.push(rows(5))
        two.push(rows(5))
        pond.drain()
        clock.advance(30 * SECOND)
        two.push(rows(70))
        epoch = pond.head().epoch
        pond.drain()
        assert pond.head().epoch == epoch + 2  # the second one is due without a row
        shown = [pond.read("closed", epoch=epoch + n).column("n").to_pylist() for n in (1, 2)]
        assert (bound(pond, "one.watermark"), shown) == (70, [[], [1]])
        assert late(pond, "behind") == 1  # what the idle source missed
        assert all(pond.replay(epoch + n).same for n in (1, 2))


def test_an_idle_source_of_a_union_before_the_watermark(tmp_path: Path) -> None:
    one, two, clock = MemorySource(SCHEMA), MemorySource(SCHEMA), ManualClock(0)
    with opened(tmp_path, clock) as pond:
        both = pond.stream("one", one).union(pond.stream("two", two))
        windows(both.watermark("at", "0s", idle="30s", id="w"))
        one.push(rows(5, 50))
        pond.drain()
        assert bound(pond, "w") is None
        clock.advance(30 * SECOND)
        one.push(rows(51))
        pond.drain()
        assert (bound(pond, "w"), closed(pond)) == (51, [1])


def test_without_idle_a_silent_partition_waits_for_ever(tmp_path: Path) -> None:
    source, clock = MemorySource(SCHEMA), ManualClock(0)
    with opened(tmp_path, clock) as pond:
        pond.stream("s", source, event_time="at", delay="0s").view("v")
        source.push(rows(5), partition="a")
        source.push(rows(70), partition="b")
        pond.drain()
        clock.advance(10**15)
        pond.drain()
        assert bound(pond) == 5


@pytest.mark.parametrize("parallelism", [1, 2])
def test_advance_closes_windows_without_a_row(tmp_path: Path, parallelism: int) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path, parallelism=parallelism) as pond:
        windows(pond.stream("s", source, event_time="at", delay="5s"))
        source.push(rows(3, 4), partition="a")
        source.push(rows(8), partition="b")
        pond.drain()
        pond.advance("s", 30 * SECOND)
        assert (bound(pond), closed(pond), pond.head().promised) == (30, [3], {})
        assert pond.replay(pond.head().epoch).same
        pond.advance("s", 20 * SECOND)
        assert bound(pond) == 30
        source.push(rows(29, 31), partition="c")
        pond.drain()
        assert late(pond) == 1
        pond.finish("s")
        assert pond.head().watermarks["s.watermark"]["bound"] == (END - datetime.datetime(1970, 1, 1)) // (
            datetime.timedelta(microseconds=1)
        )
        assert closed(pond) == [1, 3]
        with pytest.raises(InvalidError, match="feeds no watermark"):
            pond.advance("t", 5)


def test_a_promise_survives_a_crash_before_its_epoch(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        windows(pond.stream("s", source, event_time="at", delay="5s"))
        source.push(rows(3))
        pond.drain()
        pond._inbox.append("advance", {"source": "s", "at_us": 30 * SECOND})
    with opened(tmp_path) as pond:
        windows(pond.stream("s", source, event_time="at", delay="5s"))
        pond.drain()
        assert closed(pond) == [1]


def test_a_finished_source_of_a_union_holds_nothing_back(tmp_path: Path) -> None:
    one, two = MemorySource(SCHEMA), MemorySource(SCHEMA)
    with opened(tmp_path, parallelism=2) as pond:
        both = pond.stream("one", one).union(pond.stream("two", two)).watermark("at", "0s", id="w")
        windows(both)
        one.push(rows(5, 50))
        two.push(rows(6))
        pond.drain()
        pond.finish("two")
        assert (bound(pond, "w"), closed(pond)) == (50, [2])


def test_a_bounded_folder_ends_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, "a.parquet", [1.0, 12.0], 1_000)
    with opened(tmp_path / "pond") as pond:
        windows(pond.stream("s", FileSource(folder, bounded=True), event_time="at", delay="1h"))
        pond.drain()
        assert closed(pond) == [1, 1]
        epoch = pond.head().epoch
        pond.drain()
        assert pond.head().epoch == epoch


def test_a_source_bound_holds_for_its_partition_only(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        pond.stream("s", source, event_time="at", delay="0s").view("v")
        source.push(rows(5), partition="a")
        source.push(rows(6), partition="b")
        source.push(EventTimeBound(60 * SECOND), partition="a")
        pond.drain()
        assert bound(pond) == 6
        source.push(EventTimeBound(40 * SECOND), partition="b")
        pond.drain()
        assert bound(pond) == 40


@pytest.mark.parametrize("parallelism", [1, 2])
def test_punctuations_move_the_watermark_and_go_no_further(tmp_path: Path, parallelism: int) -> None:
    schema = pa.schema([*SCHEMA, ("kind", pa.string())])
    source = MemorySource(schema)
    with opened(tmp_path, parallelism=parallelism) as pond:
        found = pond.stream("s", source, event_time="at", delay="1h", punctuation="kind = 'heartbeat'")
        found.view("v")
        windows(found)
        for second, kind in ((3, "row"), (4, None), (12, "heartbeat")):
            source.push([{"at": second * SECOND, "v": second, "kind": kind}])
        pond.drain()
        assert sorted(pond.read("v").column("v").to_pylist()) == [3, 4]
        assert (bound(pond), closed(pond)) == (12, [2])
        source.push([{"at": 11 * SECOND, "v": 5, "kind": "row"}])
        pond.drain()
        assert late(pond) == 1


def test_a_source_that_is_too_far_ahead_waits(tmp_path: Path) -> None:
    one, two = MemorySource(SCHEMA), MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        first = pond.stream("one", one, event_time="at", delay="0s", max_drift="1m")
        second = pond.stream("two", two, event_time="at", delay="0s", max_drift="1m")
        first.union(second).view("v")
        one.push(rows(100))
        two.push(rows(10))
        pond.drain()
        one.push(rows(101))
        pond.drain()
        assert pond.read("v").num_rows == 2  # the first is 90 s ahead
        two.push(rows(30))
        pond.drain()
        assert pond.read("v").num_rows == 3  # it was when this epoch began
        two.push(rows(41))
        pond.drain()
        assert pond.read("v").num_rows == 5


class Model:
    """One step over partitions with an idle time: the newest time, and when the last row came."""

    def __init__(self, delay: int, idle: int) -> None:
        self.delay, self.idle = delay, idle
        self.newest, self.at = dict[str, int](), dict[str, int]()
        self.bound: int | None = None
        self.late = 0

    def epoch(self, now: int, batches: list[tuple[str, list[int]]]) -> None:
        for part, times in batches:
            self.late += sum(1 for t in times if self.bound is not None and t < self.bound)
            self.newest[part] = max(self.newest.get(part, times[0]), *times)
            self.at[part] = now
        active = [self.newest[p] for p in self.newest if now - self.at[p] < self.idle]
        if self.newest:
            found = (min(active) if active else max(self.newest.values())) - self.delay
            self.bound = found if self.bound is None else max(self.bound, found)


@pytest.mark.parametrize("seed", first(1, range(5)))
def test_random_idleness_and_restarts_equal_the_model_for_every_parallelism(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    delay, idle = draw.choice([0, 5]), 30
    clocks, script = {f"p{n}": 0 for n in range(3)}, []
    for _ in range(10):
        batches = []
        for part in draw.sample(sorted(clocks), draw.randrange(0, 4)):
            clocks[part] += draw.randrange(30)
            batches.append((part, [max(0, clocks[part] - draw.randrange(20)) for _ in range(4)]))
        script.append((draw.choice([1, 14, 16, 31]), batches))
    states = []
    for parallelism in (1, 2, 4):
        source, model, clock, found = MemorySource(SCHEMA), Model(delay, idle), ManualClock(0), []
        for number, (seconds, batches) in enumerate(script):
            clock.advance(seconds * SECOND)
            with opened(tmp_path / str(parallelism), clock, parallelism=parallelism) as pond:
                stream = pond.stream("s", source, event_time="at", delay=f"{delay}s", idle=f"{idle}s")
                stream.view("v")
                for part, times in batches:
                    source.push(rows(*times), partition=part)
                pond.rescale((parallelism + number) % 4 + 1)
                pond.drain()
                model.epoch(clock.at_us // SECOND, batches)
                assert (bound(pond), late(pond)) == (model.bound, model.late), number
                found.append(pond.head().watermarks)
        states.append(found)
    assert all(found == states[0] for found in states)
