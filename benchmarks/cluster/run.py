"""Runs both systems on a standalone cluster of two workers, with S3 and with a local folder.

Law: one cluster, one S3 server and one query for all; each contender is a process of its own, in turns.  The
peer's checkpoints, state and input are where Millpond's are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import data, report
from benchmarks.cluster.task import SMALL, Answered, Task
from benchmarks.maven import dependencies
from tests.chaos.cluster_run import options_of
from tests.chaos.standalone import BUCKET, StandaloneCluster, standalone_cluster

HADOOP = "3.5.0"  # that of pyspark's own jars
CONTENDERS = ("millpond", "spark")
STORAGES = ("folder", "s3")
MEMORY_MB = 3_000  # of a worker; executors get two thirds


def run(rows: int, keys: int, against: list[str], storages: list[str], turns: int, console: Console) -> None:
    large = data.Input(rows, keys, rows_per_file=500_000)
    small_files, large_files = data.ensure(SMALL), data.ensure(large)
    load = os.getloadavg()[0]
    found: dict[tuple[str, str], list[Answered]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="cluster-") as name,
        standalone_cluster(Path(name), memory_mb=MEMORY_MB) as cluster,
    ):
        console.print(f"S3: {cluster.server}; {cluster.network.reason or 'hosts are network namespaces'}")
        for turn in range(turns):
            for storage in storages:
                task = _task(cluster, storage, turn, small_files, large_files)
                for contender in against if turn % 2 == 0 else reversed(against):
                    one = _answer(contender, task, cluster)
                    found.setdefault((contender, storage), []).append(one)
                    console.print(contender, storage, one, highlight=False)
        server = cluster.server
    best = {which: _best(some) for which, some in found.items()}
    console.print(_table(best, load))
    figures = {
        "input": asdict(large),
        "server": server,
        "load_before": load,
        "answers": [
            {"contender": c, "storage": s, **asdict(one)} for (c, s), all_ in found.items() for one in all_
        ],
    }
    console.print(f"written: benchmarks/results/{report.keep('cluster', figures).name}")


def _best(some: list[Answered]) -> Answered:
    """The best floor and the best throughput of all turns."""
    floor = min((one.floor for one in some), key=lambda f: f.p50_ms)
    return Answered(floor, max((one.catch_up for one in some), key=lambda c: c.rows_per_second))


def _task(cluster: StandaloneCluster, storage: str, turn: int, small: Path, large: Path) -> Task:
    conf = {name: value for name, value in cluster.conf().items() if "extraJavaOptions" not in name}
    conf["spark.executor.memory"] = f"{MEMORY_MB * 2 // 3}m"
    folder = cluster.folder / f"shared-{turn}"
    task = Task(
        cluster.master, conf, str(folder), str(small), str(large), str(small), str(large), None,
        str(cluster.folder / "driver-1"),
    )  # fmt: skip
    folder.mkdir(exist_ok=True)
    if storage == "folder":
        return task
    for files, place in ((small, "small"), (large, "large")):
        _upload(cluster, files, f"in/{place}")
    place = f"s3://{BUCKET}/turn-{turn}"
    into = f"s3://{BUCKET}/in"
    return replace(task, place=place, small=f"{into}/small", large=f"{into}/large", s3=_s3(cluster))


def _s3(cluster: StandaloneCluster) -> dict[str, str]:
    """The server itself, without the proxy that can make faults."""
    return {**options_of(cluster), "endpoint": f"http://{cluster.driver_host}:{cluster.s3_port}"}


def _upload(cluster: StandaloneCluster, files: Path, prefix: str) -> None:
    import boto3

    keys = {
        "aws_access_key_id": cluster.keys["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": cluster.keys["AWS_SECRET_ACCESS_KEY"],
        "region_name": "us-east-1",
    }
    client = boto3.client("s3", endpoint_url=_s3(cluster)["endpoint"], **keys)
    for path in data.files(files):
        client.upload_file(str(path), BUCKET, f"{prefix}/{path.name}")


def _answer(contender: str, task: Task, cluster: StandaloneCluster) -> Answered:
    if contender == "spark" and task.s3 is not None:
        jars = str(hadoop_jars() / "*")
        more = {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}
        task = replace(task, conf={**task.conf, **more})
    environment = {**os.environ, **cluster.keys, "MILLPOND_CACHE_DIR": str(cluster.folder / "driver-cache")}
    for cache in cluster.folder.glob("host-*/cache"):
        shutil.rmtree(cache, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.cluster.on_{contender}", task.to_json()],
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(f"{contender}: {done.stdout[-1000:]}{done.stderr[-4000:]}")
    return Answered.from_json(done.stdout.splitlines()[-1])


def hadoop_jars() -> Path:
    """Hadoop's client of S3.

    Spark's module that commits checkpoints by put-if-absent (`spark-hadoop-cloud`) has no release for this
    version of Spark, so they are committed by rename.
    """
    return dependencies("hadoop-aws", f"org.apache.hadoop:hadoop-aws:{HADOOP}")


def _table(best: Mapping[tuple[str, str], Answered], load: float) -> Table:
    title = f"a standalone cluster of two workers with one core each; load before: {load:.1f}"
    table = Table(title=title)
    for column in (
        "",
        "storage",
        "floor p50",
        "p90",
        "machine's CPU an epoch",
        "rows/s",
        "commits",
        "machine's CPU s",
    ):
        table.add_column(column, justify="left" if column in ("", "storage") else "right")
    for (contender, storage), one in sorted(best.items(), key=lambda each: (each[0][1], each[0][0])):
        mine = best.get(("millpond", storage), one)
        floor, backlog = one.floor, one.catch_up
        share = backlog.rows_per_second / mine.catch_up.rows_per_second
        table.add_row(
            contender,
            storage,
            f"{floor.p50_ms:.0f} ms ({floor.p50_ms / mine.floor.p50_ms:.1f}x)",
            f"{floor.p90_ms:.0f} ms",
            f"{floor.cpu_ms:.0f} ms",
            f"{backlog.rows_per_second:,.0f} ({share:.2f}x)",
            str(backlog.commits),
            f"{backlog.cpu_s:.1f}",
        )
    return table
