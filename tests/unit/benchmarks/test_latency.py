"""What the latency benchmark makes of what it saw."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import data
from benchmarks.latency import age, command, feed, on_flink, on_spark, outcome
from benchmarks.latency.age import Ages, Delays, Piece, Sight
from benchmarks.latency.command import Shown
from benchmarks.latency.feed import Feed
from benchmarks.latency.outcome import Latency
from benchmarks.nexmark.queries import QUERIES
from millpond.sources.nexmark_events import NexmarkConfig

BASE_MS = NexmarkConfig().base_time_ms


def test_quantiles_are_those_of_looking_all_the_time() -> None:
    random = np.random.default_rng(7)
    commits = np.sort(random.uniform(0, 20, 60))
    sights = [
        Sight(at, max(0.0, at - lag)) for at, lag in zip(commits, random.uniform(0.05, 1, 60), strict=True)
    ]
    looked = np.linspace(5, 20, 300_001)[:-1]
    newest = np.maximum.accumulate([one.newest for one in sights])
    ages = looked - newest[np.searchsorted(commits, looked, side="right") - 1]
    found = age.pieces(sights, 5.0, 20.0)
    assert sum(one.length for one in found) == pytest.approx(15.0)
    for share in (0.01, 0.5, 0.9, 0.99):
        assert age.quantile(found, share) == pytest.approx(float(np.quantile(ages, share)), abs=1e-3)


def test_a_sight_that_is_older_than_what_was_seen_changes_nothing() -> None:
    assert age.summary([Sight(0.0, 0.0), Sight(1.0, -5.0)], 0.0, 2.0) == Ages(1000, 1980, 2000, 2, 2.0, False)


def test_one_that_does_not_keep_up_is_behind() -> None:
    steady = [Sight(n / 10, n / 10 - 0.2) for n in range(300)]
    slow = [Sight(n / 10, n / 20) for n in range(300)]
    assert not age.summary(steady, 10.0, 30.0).behind
    assert age.summary(slow, 10.0, 30.0).behind


def test_nothing_committed_is_no_age() -> None:
    with pytest.raises(ValueError, match="nothing was committed"):
        age.quantile([], 0.5)
    assert age.pieces([Sight(5.0, 4.0)], 0.0, 10.0) == [Piece(1.0, 5.0)]  # the view was empty before


def test_a_feed_is_every_event_once_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "ROOT", tmp_path)
    wanted = Feed(rate=1000, seconds=1)
    staged = feed.ensure(wanted)
    names = sorted(path.name for path in (staged / "bid").iterdir())
    assert [feed.tick_of(name) for name in names] == list(range(wanted.ticks))
    rows = pa.concat_tables(pa.parquet.read_table(staged / "bid" / name) for name in names)
    assert rows.num_rows == 920
    assert wanted.due_s(rows["date_time"][-1].value) == pytest.approx(0.999)
    ages = [os.stat(staged / "bid" / name).st_mtime for name in names]
    assert ages == sorted(set(ages))


def test_files_appear_when_their_tick_ends(tmp_path: Path) -> None:
    staged, into = tmp_path / "staged", tmp_path / "into"
    feed.folders(staged, ["bid"])
    feed.folders(into, ["bid"])
    for tick in range(3):
        (staged / "bid" / feed.file_name(tick)).write_text(str(tick))
    start = time.time()
    late_ms = feed.publish(staged, into, ["bid"], 10, start)
    assert time.time() - start >= 0.03
    assert late_ms < 10_000
    assert [path.read_text() for path in sorted((into / "bid").iterdir())] == ["0", "1", "2"]


def test_a_rate_that_leaves_a_tick_empty_is_refused() -> None:
    with pytest.raises(ValueError, match="without people"):
        Feed(rate=100, seconds=10)


def test_a_window_counts_from_the_event_that_closes_it() -> None:
    def at(ms: int) -> str:
        return str(np.datetime64(BASE_MS + ms, "ms"))

    rows = pa.table({"id": ["1", "2", "3"], "name": ["a", "b", "c"], "starttime": [at(0), at(0), at(10_000)]})
    found = command.closings(QUERIES["q8"], Feed(1000, 60), Shown(rows, [114.5, 114.7, 125.0]), start=100.0)
    assert [(round(one.at, 3), one.newest) for one in found] == [(14.7, 14.0), (25.0, 24.0)]
    assert age.delays(found, 20.0, 60.0) == Delays(1, 1000.0, 1000.0)


def test_batches_of_spark_are_read_from_its_logs(tmp_path: Path) -> None:
    for source, ticks in ((0, (3, 5)), (1, (2, 9))):
        folder = tmp_path / "sources" / str(source)
        folder.mkdir(parents=True)
        for entry, tick in enumerate(ticks):
            line = {"path": f"file:///in/{feed.file_name(tick)}", "timestamp": 1, "batchId": entry}
            (folder / str(entry)).write_text("v1\n" + json.dumps(line))
            (folder / f".{entry}.crc").write_text("")
    (tmp_path / "offsets").mkdir()
    for batch, offsets in enumerate(((0, None), (0, 0), (1, 1))):
        lines = ["-" if one is None else json.dumps({"logOffset": one}) for one in offsets]
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *lines]))
    assert on_spark.ticks_by_batch(tmp_path) == {0: 0, 1: 3, 2: 6}


def test_checkpoints_of_flink_are_read_from_its_log(tmp_path: Path) -> None:
    line = "2026-11-16 00:00:0{},250 INFO  org.CheckpointCoordinator [] - {} checkpoint 1 {}"
    (tmp_path / "flink.log").write_text(
        "\n".join(
            [line.format(1, "Triggering", "(type=x)"), line.format(2, "Completed", "for job a (7 bytes)")]
        )
    )
    (at,) = on_flink.completed(tmp_path)
    assert at % 60 == 2.25


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    ages = Ages(1.0, 2.0, 3.0, 4, 5.0, False)
    one = Latency(
        name="flink",
        system="Flink",
        query="q7",
        rate=1000,
        seconds=60,
        tick_ms=100,
        cores=2,
        committed="when it is",
        age=ages,
        results=Delays(2, 1.0, 2.0),
        emitted=ages,
        emitted_results=None,
        feed_late_ms=0.1,
        startup_seconds=9.0,
        cpu_seconds=1.0,
        other_cpu_seconds=0.0,
        peak_rss_anon_bytes=1,
        wrong=("a row",),
        settings={"a": "b"},
    )
    one.write(tmp_path / "one.json")
    assert outcome.read(tmp_path / "one.json") == one
