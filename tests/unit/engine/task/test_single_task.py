"""An epoch of one task in each level: no frames, and the same outcome (law 3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.engine import inline
from millpond.engine.task import frames
from millpond.sources.memory import MemorySource

SECOND = 1_000_000
VIEWS = ("windows", "late", "pairs", "names", "best")


def epochs(folder: Path) -> Iterator[tuple[Any, Any]]:
    """The views of a pipeline of several levels, and what its reports told, after each epoch."""
    source = MemorySource(
        pa.schema([("at", pa.timestamp("us")), ("k", pa.int64()), ("s", pa.string()), ("x", pa.float64())])
    )
    options: dict[str, Any] = {"parallelism": 1, "durable": False, "checks": True, "compact": False}
    with millpond.open(folder, engine="inline", **options) as pond:
        rows = pond.stream("s", source, event_time="at", delay="2s")
        rows.tumble("10s").key_by("window_end", "s").aggregate(
            on_close=True, n="count(*)", total="sum(x)"
        ).view("windows")
        counts = rows.key_by("k", "s").aggregate(n="count(*)", id="counts")
        counts.key_by("s").aggregate(most="max(n)", id="best").view("best")  # behind two exchanges
        rows.join(counts, on=["k"]).select("k", "s", "n").view("pairs")  # one of which skips a level
        rows.select("s").distinct().view("names")
        for number in range(6):
            source.push(
                [
                    {
                        "at": (number * 5 + i % 4) * SECOND,
                        "k": i % 3,
                        "s": f"s{i % (number + 1)}" if i % 5 else None,
                        "x": i / 7,
                    }
                    for i in range(20)
                ]
            )
            pond.drain()
            views = [sorted(map(repr, pond.read(v).to_pylist())) for v in VIEWS if v in pond.plan.views]
            head = pond.head()
            yield views, (head.watermarks, head.counts)


def test_the_outcome_is_that_with_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [*epochs(tmp_path / "alone")]

    def framed(spec: Any, worker: Any, task: int) -> list[bytes]:
        inbox: list[bytes] = []
        for level in range(len(spec.parallelism)):
            inbox = [raw for _, raw in inline.run_task(spec, level, task, iter(inbox), worker)]
        return inbox

    monkeypatch.setattr(inline, "run_all_levels", framed)
    assert [*epochs(tmp_path / "framed")] == alone
    assert len(alone) == 6 and all(alone[-1][0])


def test_no_frame_is_made_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_frame(*_: Any) -> None:
        raise AssertionError("rows were written into a frame")

    monkeypatch.setattr(frames, "encode_table", no_frame)
    assert len([*epochs(tmp_path / "pond")]) == 6
