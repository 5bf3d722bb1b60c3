"""Faults on a standalone cluster of three hosts, with the pond on S3: every view equals batch in the end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import millpond
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.executors import executor_count
from millpond.sources.memory import MemorySource
from tests.waiting import until

from .cluster_run import run
from .standalone import standalone_cluster

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("MILLPOND_CHAOS_ROUNDS", "1"))


def test_nothing_that_breaks_on_a_cluster_changes_a_view(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as cluster:
        recovered = run(cluster, max(1, ROUNDS // 5), print)
    print(recovered)
    assert {"executor", "worker", "s3 outage", "driver"} <= recovered.keys()


def test_executors_come_and_go_with_the_tasks(tmp_path: Path) -> None:
    """Of two workers with one core each; decisions are commits, and no row is lost or doubled."""
    source = MemorySource({"k": int})
    with standalone_cluster(tmp_path) as cluster:
        pond = millpond.open(
            tmp_path / "pond",
            master=cluster.master,
            spark_conf=cluster.conf(),
            autoscale="on",
            executors_max=2,
            tasks_max=2,
            scaling_pause_ms=1_000,
        )
        pond.stream("in", source).key_by("k").aggregate(n="count(*)").view("counts")
        engine = pond.engine
        assert isinstance(engine, SparkEngine) and engine.executors is not None
        until(lambda: executor_count(engine.session.sparkContext) == 2)
        rows = 0

        def epochs_until(executors: int, seconds: float) -> None:
            def reached() -> bool:
                nonlocal rows
                source.push([{"k": n % 7} for n in range(100)])
                rows += 100
                pond.drain()
                return executor_count(engine.session.sparkContext) == executors

            began = time.monotonic()
            until(reached, seconds)
            print(f"{executors} executors after {time.monotonic() - began:.1f} s")

        assert engine.executors.cores_each == 1
        epochs_until(1, 120)  # a hundred rows need one task
        pond.set(tasks_min=2)
        epochs_until(2, 120)
        assert sum(pond.read("counts")["n"].to_pylist()) == rows
        decided = [row for row in pond.scaling().to_pylist() if row["executors"]]
        assert [row["executors"] for row in decided] == [1, 2] and all(row["reason"] for row in decided)
        pond.close()
