"""Every partition has its own watermark; the step's is the least of them, for any parallelism (laws 3 and 8)."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond import Pond
from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource
from tests.sampling import first

SECOND = 1_000_000
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("v", pa.int64())])


def rows(*seconds: float) -> list[dict[str, Any]]:
    return [{"at": round(s * SECOND), "v": n} for n, s in enumerate(seconds)]


def opened(path: Path, **settings: Any) -> Pond:
    return millpond.open(path, engine="inline", durable=False, **settings)


def bound(pond: Pond, step: str = "s.watermark") -> float | None:
    state = pond.head().watermarks.get(step)
    return None if state is None or state["bound"] is None else state["bound"] / SECOND


def late(pond: Pond, step: str = "s.watermark") -> int:
    return pond.head().counts.get(f"late/{step}", 0)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_slowest_partition_bounds_the_stream(tmp_path: Path, parallelism: int) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path, parallelism=parallelism) as pond:
        stream = pond.stream("s", source, event_time="at", delay="5s")
        stream.tumble("10s").key_by("window_end").aggregate(on_close=True, n="count(*)").view("closed")
        source.push(rows(100, 101), partition="a")
        source.push(rows(20, 22), partition="b")
        pond.drain()
        assert bound(pond) == 17
        source.push(rows(200), partition="a")
        pond.drain()
        assert bound(pond) == 17  # b may still send rows of its time
        source.push(rows(21, 60), partition="b")
        pond.drain()
        assert (bound(pond), late(pond)) == (55, 0)
        assert pond.read("closed").column("n").to_pylist() == [3]
        assert pond.replay(pond.head().epoch).same


@pytest.mark.parametrize("between", ["nothing", "map and filter"])
def test_partitions_are_traced_through_linear_steps(tmp_path: Path, between: str) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path, parallelism=2) as pond:
        stream = pond.stream("s", source)
        if between != "nothing":
            stream = stream.select(at="at", v="v + 1").filter("v > 0")
        stream.watermark("at", "0s", id="w").view("v")
        source.push(rows(50), partition="a")
        source.push(rows(30), partition="b")
        source.push(rows(70), partition="a")
        pond.drain()
        assert bound(pond, "w") == 30
        assert set(pond.head().watermarks["w"]["scans"]["s"]["parts"]) == {"a", "b"}


def test_a_partition_whose_rows_are_all_filtered_out_holds_nothing_back(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        pond.stream("s", source).filter("v > 0").watermark("at", "0s", id="w").view("v")
        source.push(rows(10, 50), partition="a")
        source.push(rows(20), partition="b")
        pond.drain()
        assert bound(pond, "w") == 50


def test_a_source_of_a_union_that_has_sent_nothing_holds_the_watermark_back(tmp_path: Path) -> None:
    one, two = MemorySource(SCHEMA), MemorySource(SCHEMA)
    with opened(tmp_path, parallelism=2) as pond:
        both = pond.stream("one", one).union(pond.stream("two", two)).watermark("at", "0s", id="w")
        both.view("v")
        one.push(rows(50))
        pond.drain()
        assert bound(pond, "w") is None
        two.push(rows(20))
        pond.drain()
        assert (bound(pond, "w"), late(pond, "w")) == (20, 0)


def write(folder: Path, name: str, seconds: list[float], mtime: int) -> None:
    table = pa.Table.from_pylist(rows(*seconds), schema=SCHEMA)
    pq.write_table(table, folder / name, row_group_size=100)
    os.utime(folder / name, (mtime, mtime))


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("epoch_rows_max", [300, 10_000])
def test_files_with_the_same_times_do_not_make_each_other_late(
    tmp_path: Path, epoch_rows_max: int, parallelism: int
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    times = [float(n) for n in range(2000)]
    write(folder, "a.parquet", times, 1_000)
    write(folder, "b.parquet", times, 2_000)
    with opened(tmp_path / "pond", epoch_rows_max=epoch_rows_max, parallelism=parallelism) as pond:
        stream = pond.stream("s", FileSource(folder), event_time="at", delay="5s")
        stream.key_by("at").aggregate(n="count(*)").view("n")
        pond.drain()
        assert late(pond) == 0
        assert bound(pond) == 1994
        assert "parts" not in pond.head().watermarks["s.watermark"]["scans"]["s"]  # both are forgotten
        write(folder, "c.parquet", [1990.0, 1995.0, 3000.0], 3_000)  # appended: the bound is what it was
        pond.drain()
        assert (late(pond), bound(pond)) == (1, 2995)


def test_a_folder_that_is_always_behind_lets_the_watermark_rise(tmp_path: Path) -> None:
    """Files that appear while others are read belong to the next generation."""
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, "0.parquet", [float(n) for n in range(100)], 1_000)
    write(folder, "1.parquet", [float(n) for n in range(100, 200)], 1_001)
    with opened(tmp_path / "pond", epoch_rows_max=100) as pond:
        pond.stream("s", FileSource(folder), event_time="at", delay="0s").view("v")
        found = []

        def more(_: Any) -> None:  # in each epoch one file is read, and after it one appears
            number = len(found) + 2
            if number < 12:
                times = [float(n) for n in range(number * 100, number * 100 + 100)]
                write(folder, f"{number}.parquet", times, 1_000 + number)
            found.append(bound(pond))

        pond.on_epoch(more)
        pond.drain()
        assert found[8] is not None and found[8] >= 500  # more files are waiting all the time
        assert (late(pond), bound(pond)) == (0, 1199)


def test_a_listed_file_that_vanishes_no_longer_holds_the_watermark(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, "a.parquet", [float(n) for n in range(100)], 1_000)
    write(folder, "b.parquet", [float(n) for n in range(100)], 2_000)
    with opened(tmp_path / "pond", epoch_rows_max=100) as pond:
        pond.stream("s", FileSource(folder), event_time="at", delay="0s").view("v")
        bounds = []

        def gone(_: Any) -> None:
            if pond.head().admitted.get("s"):
                bounds.append(bound(pond))
                (folder / "b.parquet").unlink(missing_ok=True)

        pond.on_epoch(gone)
        pond.drain()
        assert (bounds, bound(pond)) == ([0], 99)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("statistics", [True, False])
def test_files_that_were_not_read_hold_the_watermark_at_their_least_time(
    tmp_path: Path, statistics: bool, unit: str
) -> None:
    rng = random.Random(4)
    folder = tmp_path / "in"
    folder.mkdir()
    schema = pa.schema([("at", pa.timestamp(unit)), ("v", pa.int64())])
    files = {}  # files overlap, and one that is read late is older than those before it
    for number in range(8):
        begins = 20 * number if number != 5 else 45
        times = sorted(begins + rng.uniform(0, 40) for _ in range(100))
        files[f"{number}.parquet"] = [round(t * 1000) * 1000 for t in times]  # whole milliseconds, in us
        table = pa.table({"at": pa.array(files[f"{number}.parquet"], pa.timestamp("us")), "v": range(100)})
        table = table.cast(schema)
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=30, write_statistics=statistics)
        os.utime(folder / f"{number}.parquet", (1_000 + number, 1_000 + number))
    with opened(tmp_path / "pond", epoch_rows_max=100) as pond:
        stream = pond.stream("s", FileSource(folder), event_time="at", delay="0s")
        stream.tumble("10s").key_by("window_end").aggregate(on_close=True, n="count(*)").view("closed")
        found = []

        def check(_: Any) -> None:
            read = (pond.head().positions.get("s") or {"files": 0})["files"]
            unread = [
                min(times) for name, times in files.items() if int(name[0]) > read
            ]  # one is read in part
            at = bound(pond)
            found.append(at)
            assert at is None or not unread or at * SECOND <= min(unread)

        pond.on_epoch(check)
        pond.drain()
        assert late(pond) == 0
        assert bound(pond) == max(map(max, files.values())) / SECOND
        if statistics:  # the watermark rises file by file, up to the older one; without statistics at the end
            assert len({at for at in found if at is not None}) >= 5
        else:
            assert {at for at in found if at is not None} == {bound(pond)}
        assert pond.replay(pond.head().epoch).same


class Model:
    """The watermark of one step over partitions: the newest time of each, and the bound."""

    def __init__(self, delay: int) -> None:
        self.delay, self.newest, self.bound, self.late = delay, dict[str, int](), None, 0

    def epoch(self, batches: list[tuple[str, list[int]]]) -> None:
        for part, times in batches:
            self.late += sum(1 for t in times if self.bound is not None and t < self.bound)
            self.newest[part] = max(self.newest.get(part, times[0]), *times)
        least = min(self.newest.values()) - self.delay
        self.bound = least if self.bound is None else max(self.bound, least)


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_random_partitions_equal_the_model_for_every_parallelism(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    delay = draw.choice([0, 3, 20])
    clocks = {f"p{n}": draw.randrange(50) for n in range(draw.randrange(1, 5))}
    script = []
    for _ in range(8):
        batches = []
        for part in draw.sample(sorted(clocks), draw.randrange(1, len(clocks) + 1)):
            for _ in range(draw.randrange(1, 3)):
                clocks[part] += draw.randrange(30)
                times = [max(0, clocks[part] - draw.randrange(40)) for _ in range(draw.randrange(1, 6))]
                batches.append((part, times))
        script.append(batches)
    states = []
    for parallelism in (1, 2, 3, 4):
        source, model, found = MemorySource(SCHEMA), Model(delay), []
        path = tmp_path / str(parallelism)
        for number, batches in enumerate(script):
            # Every third epoch runs after a restart, with another parallelism.
            more = (parallelism + number // 3) % 4 + 1
            with opened(path, parallelism=more) as pond:
                pond.stream("s", source, event_time="at", delay=f"{delay}s").view("v")
                for part, times in batches:
                    source.push(rows(*times), partition=part)
                pond.rescale(more)
                pond.drain()
                model.epoch(batches)
                assert (bound(pond), late(pond)) == (model.bound, model.late)
                found.append(pond.head().watermarks)
        states.append(found)
    assert all(found == states[0] for found in states)
