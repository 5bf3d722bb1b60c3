"""Load shedding on Spark: the same rows are kept as inline (law 3), and recovery makes the views exact."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.engine.coordinator import shed_decisions
from millpond.sources.memory import MemorySource

START = datetime.datetime(2024, 1, 1)


def run(path: Path, **options: Any) -> list[Any]:
    """A join by key, rows that can be retracted, windows, and a score: the views after each epoch."""
    bids, auctions = MemorySource({"a": int, "x": int}), MemorySource({"a": int, "r": int})
    rows = MemorySource({"k": int, "x": int}, append_only=False)
    hits = MemorySource({"at": datetime.datetime, "k": int})
    clicks = MemorySource({"k": int, "x": int})
    seen: list[Any] = []
    with millpond.open(path, parallelism=3, durable=False, **options) as pond:
        both = pond.stream("bids", bids).join(pond.stream("auctions", auctions), on="a")
        both.key_by("r", "a").aggregate(n="count(*)", most="max(x)").view("sold")
        pond.stream("rows", rows).key_by("k").aggregate(n="count(*)", most="max(x)").view("live")
        timed = pond.stream("hits", hits, event_time="at").tumble("10s")
        timed.key_by("window_start").aggregate(n="count(*)").view("windows")
        pond.stream("clicks", clicks).key_by("k").aggregate(n="count(*)", s="sum(x)").view("clicked")
        views = ("sold", "live", "windows", "clicked")
        pond.drain()
        for source in ("bids", "auctions"):
            pond.shed(source, "1s", by="key", key="a", floor=0.25)
        pond.shed("rows", "1s", by="key", key="k", floor=0.25)
        pond.shed("hits", "1s", by="window", floor=0.25)
        pond.shed("clicks", "1s", score="x / 2", floor=0.1)
        pond.on_epoch(
            lambda m: seen.append(
                (m.counts, [sorted(pond.read(v, epoch=m.epoch).to_pylist(), key=str) for v in views])
            )
        )
        for turn in range(2):
            auctions.push([{"a": n, "r": n % 3} for n in range(turn * 60, turn * 60 + 60)])
            bids.push([{"a": n % 120, "x": n * 7 % 97} for n in range(600)])
            rows.push([{"k": n % 40, "x": n} for n in range(turn * 300, turn * 300 + 300)])
            hits.push(
                [{"at": START + datetime.timedelta(seconds=turn * 300 + n), "k": n} for n in range(300)]
            )
            clicks.push([{"k": n % 3, "x": n % 9} for n in range(600)])
            pond.drain()
        rows.push([{"k": n % 40, "x": n, "_w": -1} for n in range(100)])
        pond.drain()
    return seen


def test_spark_keeps_the_same_rows(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By the clock, no two runs would decide alike.
    monkeypatch.setattr(shed_decisions, "next_divisor", lambda _s, _p, rows, _max: 4 if rows > 250 else 1)
    expected = run(tmp_path / "inline", engine="inline")
    assert run(tmp_path / "spark", spark=session) == expected
    counts, (sold, live, windows, clicked) = expected[-1]
    assert any(c.get("shed/bids") and c.get("shed/rows") for c, _ in expected)
    assert counts["shed/hits"] > 0 and {r["n"] for r in windows} == {10}
    for source in ("bids", "auctions", "rows", "clicks"):
        assert counts[f"shed/{source}"] == 0, source
    assert len(sold) == 120 and {r["n"] for r in sold} == {10} and len(live) == 40
    assert sum(r["n"] for r in live) == 500 and [r["n"] for r in clicked] == [400] * 3
