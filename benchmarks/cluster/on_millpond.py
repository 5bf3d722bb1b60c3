"""Millpond on the cluster: the driver of one run, in a process of its own.

The floor is the time from commit to commit while a backlog of small files is worked off, one in each epoch.
The large backlog is timed from before the pond is opened to the commit of its last row.
"""

from __future__ import annotations

import time
from typing import Any

import millpond
from benchmarks import data
from benchmarks.cluster.task import (
    SMALL,
    WARM,
    Answered,
    CatchUp,
    Floor,
    Task,
    answer_of,
    compare,
    floor_of,
    timed,
)
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.session import make_session
from millpond.sources.files import FileSource


def opened(task: Task, session: Any, name: str, **settings: Any) -> millpond.Pond:
    options = dict(task.s3 or {})
    place = f"{task.place}/millpond-{name}"
    return millpond.open(place, spark=session, store_options=options, parallelism=2, **settings)


def define(pond: millpond.Pond, task: Task, folder: str) -> None:
    if task.s3 is not None:
        scheme, host = task.s3["endpoint"].split("://")
        folder += f"?region={task.s3['region']}&scheme={scheme}&endpoint_override={host}"
    bids = pond.stream("bids", FileSource(folder, schema=data.SCHEMA))
    sums = bids.key_by("auction").aggregate(n="count(*)", total="sum(price)", id="by_auction")
    sums.view("by_auction")


def floor(task: Task, session: Any) -> Floor:
    at: list[float] = []
    phases: list[dict[str, float]] = []

    def committed(manifest: Any) -> None:
        at.append(time.perf_counter())
        job = float(manifest.metrics.get("ms", 0.0))
        phases.append({"job": job, **manifest.metrics.get("phases_ms", {})})

    with opened(task, session, "floor", epoch_rows_max=SMALL.rows_per_file) as pond:
        define(pond, task, task.small)
        pond.on_epoch(committed)
        _, _, cpu_s = timed(pond.drain)
        compare("millpond", answer_of(pond.read("by_auction")), task.small_files)
    ms = [1000 * (b - a) for a, b in zip(at[WARM:], at[WARM + 1 :], strict=False)]
    return floor_of(ms, phases[WARM + 1 :], cpu_s, len(at))


def catch_up(task: Task, session: Any) -> CatchUp:
    def run() -> millpond.Pond:
        pond = opened(task, session, "backlog")
        define(pond, task, task.large)
        pond.drain()
        return pond

    pond, seconds, cpu_s = timed(run)
    compare("millpond", answer_of(pond.read("by_auction")), task.large_files)
    rows, epochs = pond.head().counts["rows/bids"], pond.epoch
    pond.close()
    return CatchUp(rows, seconds, epochs, cpu_s)


def main() -> None:
    task = Task.given()
    session = make_session(task.master, extra=task.conf)
    SparkEngine(session)  # checks the session and rehearses, as the first pond on it would
    print(Answered(floor(task, session), catch_up(task, session)).to_json())
    session.stop()


if __name__ == "__main__":
    main()
