"""`pond.watermarks()`: the progress of each source and partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond import Pond
from millpond.clock import ManualClock
from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource
from tests.unit.engine.test_watermark_partitions import SCHEMA, SECOND, rows, write
from tests.unit.engine.test_watermark_progress import opened, windows


def told(pond: Pond, name: str) -> dict[tuple[str | None, str | None], Any]:
    """A column of the table, by source and partition."""
    return {(row["source"], row["partition"]): row[name] for row in pond.watermarks().to_pylist()}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_late_and_held_rows_of_each_partition(tmp_path: Path, parallelism: int) -> None:
    source, clock = MemorySource(SCHEMA), ManualClock(100 * SECOND)
    with opened(tmp_path, clock, parallelism=parallelism) as pond:
        windows(pond.stream("s", source, event_time="at", delay="0s", idle="30s"))
        source.push(rows(5, 25, 31), partition="a")
        source.push(rows(12), partition="b")
        pond.drain()
        source.push(rows(11, 13), partition="a")
        source.push(rows(3, 4, 14), partition="b")
        pond.drain()
        whole, first, second = (None, None), ("s", "a"), ("s", "b")
        assert told(pond, "late_rows") == {whole: 3, ("s", None): 3, first: 1, second: 2}
        # Windows that end at 20, 30 and 40 are open; the watermark of "a" is past the first two.
        assert told(pond, "held_rows")[first] == 1
        assert told(pond, "held_rows")[second] == told(pond, "held_rows")[whole] >= 3
        assert told(pond, "event_lag_ms")[second] == 17_000.0
        assert told(pond, "processing_lag_ms")[first] == 69_000.0
        late = pond.sql("SHOW WATERMARKS").fetchall()
        assert [row[8] for row in late] == [3, 3, 1, 2]
        pond.rollback(1)
        assert set(told(pond, "late_rows").values()) == {0}


def test_late_rows_of_files_that_were_read(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, "a.parquet", [100.0], 1_000)
    with opened(tmp_path / "pond") as pond:
        windows(pond.stream("s", FileSource(folder), event_time="at", delay="0s"))
        pond.drain()
        write(folder, "b.parquet", [1.0, 2.0, 101.0], 2_000)
        pond.drain()
        assert told(pond, "late_rows")["s", None] == 2


def test_rows_that_in_order_holds(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with opened(tmp_path) as pond:
        ordered = pond.stream("s", source, event_time="at", delay="5s").key_by().in_order(slack=100)
        ordered.stream.view("v")
        source.push(rows(3, 4, 15))
        pond.drain()
        assert told(pond, "held_rows")[None, None] == 1
        assert "releases s.watermark.in_order/held by at, behind s.watermark" in pond.explain()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_has_ended_says_so(tmp_path: Path, parallelism: int) -> None:
    """The source and its partitions, the watermark as a whole, and one that follows it behind a step with state."""
    one, two = MemorySource(SCHEMA), MemorySource(SCHEMA)
    with opened(tmp_path, parallelism=parallelism) as pond:
        left = pond.stream("one", one, event_time="at", delay="5s")
        both = left.union(pond.stream("two", two, event_time="at", delay="5s"))
        both.distinct("v", "at").watermark("at", "1s", id="behind").view("v")
        one.push(rows(5), partition="a")
        one.push(rows(7), partition="b")
        two.push(rows(6))
        pond.drain()
        states = lambda: {tuple(r[:3]): r[7] for r in pond.sql("SHOW WATERMARKS").fetchall()}  # noqa: E731
        assert set(states().values()) == {"active"}
        pond.finish("one")
        pond.drain()
        ended = {place for place, state in states().items() if state == "ended"}
        assert ended == {
            ("one.watermark", *of) for of in ((None, None), ("one", None), ("one", "a"), ("one", "b"))
        }
        pond.finish("two")
        pond.drain()
        assert set(states().values()) == {"ended"}


def test_files_that_are_read_to_their_end_have_ended(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, "a.parquet", [100.0], 1_000)
    with opened(tmp_path / "pond") as pond:
        windows(pond.stream("s", FileSource(folder, bounded=True), event_time="at", delay="0s"))
        pond.drain()
        assert set(told(pond, "state").values()) == {"ended"}
        assert pond.explain()
