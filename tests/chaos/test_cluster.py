"""Faults on a standalone cluster of three hosts, with the pond on S3: every view equals batch in the end."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import millpond
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.executors import executor_count
from millpond.sources.memory import MemorySource
from tests.waiting import until

from .cluster_run import Driver, options_of, run, signal_all
from .pipeline import LEASE_MS
from .standalone import BUCKET, WORKERS, StandaloneCluster, standalone_cluster

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


def test_tasks_stay_on_the_host_that_has_their_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small epochs of two levels: what a task reads is in the disk cache of its host, and so it is after a restart."""
    monkeypatch.setattr(SparkEngine, "single_task_rows_max", 0)
    monkeypatch.setenv("MILLPOND_CACHE_DIR", str(tmp_path / "driver-cache"))
    source = MemorySource({"k": int})
    with standalone_cluster(tmp_path) as cluster:
        if cluster.network.reason:
            pytest.skip(f"both workers are one host: {cluster.network.reason}")
        for name, value in cluster.keys.items():
            monkeypatch.setenv(name, value)
        pond = millpond.open(
            f"s3://{BUCKET}/placed",
            master=cluster.master,
            spark_conf=cluster.conf(),
            store_options=options_of(cluster),
            parallelism=2,
            compact=False,
        )
        pond.stream("in", source).key_by("k").aggregate(n="count(*)").view("counts")
        engine = pond.engine
        assert isinstance(engine, SparkEngine)
        until(lambda: executor_count(engine.session.sparkContext) == 2)

        def fetched(epochs: int) -> int:
            """The files that tasks fetched from S3."""
            misses = 0
            for _ in range(epochs):
                source.push(*([{"k": n} for n in range(part, 2_000, 2)] for part in range(2)))
                pond.drain()
                metrics = pond.head().metrics
                assert metrics["tasks"] == [2, 2]
                misses += metrics.get("cache", {}).get("misses", 0)
            return misses

        fetched(3)
        placed = fetched(12)
        placement, engine._placement = engine._placement, None
        anywhere = fetched(12)
        engine._placement = placement
        print(f"files fetched in 12 epochs: {placed} with a placement, {anywhere} without")
        assert sum(pond.read("counts")["n"].to_pylist()) == 27 * 2_000
        pond.close()
    assert placed <= 2 < anywhere


def test_a_standby_on_another_host_commits_soon_after_the_lease_is_over(tmp_path: Path) -> None:
    """The standby has an executor and a warm session; it cannot see that the process of the driver is gone."""
    with standalone_cluster(tmp_path) as cluster:
        if cluster.network.reason:
            pytest.skip(f"there is one host: {cluster.network.reason}")
        one_worker = {"spark.cores.max": "1"}
        driver = Driver(cluster, 10_000, one_worker)
        standby = None
        try:
            driver.wait_until(lambda: driver.position() > 0, 240)
            standby = Driver(cluster, 10_000, one_worker, standby_on=WORKERS[1])
            standby.wait_until(lambda: "ready to take over" in standby.text(), 240)
            at = driver.position()
            driver.wait_until(lambda: driver.position() > at, 240)
            assert standby.position() == 0
            driver.kill()
            began = time.monotonic()
            standby.wait_until(lambda: standby.position() > 0, 120)
            took = time.monotonic() - began
            at = standby.position()
            standby.wait_until(lambda: standby.position() > at, 120)
            with_input = time.monotonic() - began
        finally:
            for process in (driver, standby):
                if process is not None and process.process.poll() is None:
                    process.kill()
    print(f"the standby had the pond after {took:.1f} s, its first rows after {with_input:.1f} s")
    assert took < LEASE_MS / 1000 + 10  # two seconds on a machine that has cores for two drivers


def test_speculation_ends_an_epoch_without_the_host_that_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkEngine, "single_task_rows_max", 0)
    stall_s = 30.0

    def stalled_epoch(cluster: StandaloneCluster, speculation: str) -> float:
        """How long an epoch takes while the Python workers of one host are stopped."""
        source = MemorySource({"k": int})
        conf = {**cluster.conf(), "spark.speculation": speculation}
        pond = millpond.open(
            tmp_path / f"pond-{speculation}",
            master=cluster.master,
            spark_conf=conf,
            parallelism=2,
            compact=False,
        )
        try:
            pond.stream("in", source).key_by("k").aggregate(n="count(*)").view("counts")
            engine = pond.engine
            assert isinstance(engine, SparkEngine)
            until(lambda: executor_count(engine.session.sparkContext) == 2)
            for number in range(5):
                if number == 4:
                    stalled = cluster.python_workers(WORKERS[0])
                    signal_all(stalled, signal.SIGSTOP)
                    threading.Timer(stall_s, signal_all, (stalled, signal.SIGCONT)).start()
                began = time.monotonic()
                source.push(*([{"k": n} for n in range(part, 100, 2)] for part in range(2)))
                pond.drain()
            took = time.monotonic() - began
            assert sum(pond.read("counts")["n"].to_pylist()) == 5 * 100
            return took
        finally:
            pond.close()

    with standalone_cluster(tmp_path) as cluster:
        took = {speculation: stalled_epoch(cluster, speculation) for speculation in ("true", "false")}
    print(
        f"an epoch with a stalled host: {took['true']:.1f} s with speculation, {took['false']:.1f} s without"
    )
    assert took["true"] < stall_s - 5 < took["false"]
