"""A program that changes on Spark: the same as inline, law 1 at every epoch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond
from millpond.engine.change.backfill import Progress
from millpond.sources.files import FileSource
from tests.oracle import pipeline
from tests.oracle.test_changes import ChangingWorld
from tests.sampling import seeds

SEEDS = int(os.environ.get("MILLPOND_ENGINE_SEEDS", "2"))


@pytest.fixture(autouse=True, scope="module")
def functions_by_value() -> Iterator[None]:
    """The workers cannot import the tests: what a view's Python is goes with the plan."""
    cloudpickle.register_pickle_by_value(pipeline)
    yield
    cloudpickle.unregister_pickle_by_value(pipeline)


@pytest.mark.parametrize("seed", seeds(0, 8000, SEEDS, "MILLPOND_ENGINE_SEEDS"))
def test_views_come_and_go(seed: int, session: Any, tmp_path: Path) -> None:
    world = ChangingWorld(tmp_path / "pond", seed, engine="spark", spark=session)
    try:
        world.run(steps=5)
        assert world.changes
    finally:
        world.close()


def test_files_are_read_again_and_views_read_in_chunks(session: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(4):
        rows = pa.table({"k": [i % 7 for i in range(500)], "v": list(range(n * 500, n * 500 + 500))})
        pq.write_table(rows, folder / f"{n}.parquet")
    options: dict[str, Any] = {"durable": False, "epoch_rows_max": 600, "parallelism": 3}
    with millpond.open(tmp_path / "pond", engine="spark", spark=session, **options) as pond:
        stream = pond.stream("in", FileSource(folder))
        kept = stream.filter("v % 2 = 0").view("even")
        pond.drain()
        told: list[Progress] = []
        with pond.changing(on_progress=told.append):
            stream.key_by("k").aggregate(n="count(*)", s="sum(v)").view("sums")
            kept.top_n(3, "v desc").view("top")
        assert len(told) > 3
        assert told[-1].rows == told[-1].total == 3000
        found = pond.read("sums")
        assert sum(found["n"].to_pylist()) == 2000
        assert sum(found["s"].to_pylist()) == sum(range(2000))
        assert sorted(pond.read("top")["v"].to_pylist()) == [1994, 1996, 1998]


def test_a_changed_view_is_replaced_after_a_restart(session: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = pa.table({"k": [i % 3 for i in range(100)], "v": list(range(100))})
    pq.write_table(rows, folder / "0.parquet")

    def program(**aggregates: str) -> millpond.Pond:
        pond = millpond.open(tmp_path / "pond", engine="spark", spark=session, durable=False)
        pond.stream("in", FileSource(folder)).key_by("k").aggregate(**aggregates).view("by_k")
        return pond

    with program(n="count(*)") as pond:
        pond.drain()
    for number in (1, 2):
        with program(n="count(*)", s="sum(v)") as pond:
            if number == 1:
                pond.replace("by_k")
            pq.write_table(rows, folder / f"{number}.parquet")
            pond.drain()
            found = {row["k"]: (row["n"], row["s"]) for row in pond.read("by_k").to_pylist()}
            times = number + 1
            wanted = {k: [v for v in range(100) if v % 3 == k] for k in range(3)}
            assert found == {k: (times * len(v), times * sum(v)) for k, v in wanted.items()}
