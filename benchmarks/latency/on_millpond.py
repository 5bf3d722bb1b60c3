"""Millpond: the query as a view over followed folders on Spark, every commit synced to disk.

Law: committed means that the manifest of the epoch is on disk, so that any reader finds the view with it; it
is timed when the commit has returned. The rows of a window are read back from the changes of the epochs that
were committed, so what is timed is what a reader finds.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import millpond
from benchmarks.latency import command, feed
from benchmarks.latency.age import Sight
from benchmarks.latency.command import SETTLE_S, Asked, Shown, of_files
from benchmarks.latency.outcome import Latency
from benchmarks.measure import Sampler, confine
from benchmarks.nexmark.queries import ON_CLOSE
from benchmarks.peers.command import work_folder
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.session import make_session
from millpond.flow.stream import Stream
from millpond.sources.files import FileSource
from millpond.sources.nexmark_events import SCHEMAS
from millpond.sql.binding.catalog import Catalog
from millpond.sql.lowering.query import lower_query
from millpond.sql.text.emit_clause import Emission
from millpond.state.manifest.manifest import Manifest

SETTINGS: dict[str, Any] = {"poll_ms": 10, "retain_epochs": 20_000}


def define(pond: millpond.Pond, job: Asked, folder: Path) -> None:
    for table in job.query.reads:
        source = FileSource(str(folder / table), schema=SCHEMAS[table])
        pond.stream(table, source, event_time="date_time", delay="4s")
    text = command.text("millpond", job.query)
    on_close = text.endswith(ON_CLOSE)
    catalog = Catalog(pond.plan)
    builder = pond._builder
    found = lower_query(
        builder,
        catalog.binder,
        catalog.relations(),
        job.query.name,
        text.removesuffix(ON_CLOSE).strip(),
        Emission(on_close=on_close),
    )
    Stream(builder, found.step).view(job.query.name)


def ticks_in(manifest: Manifest, job: Asked) -> int:
    """How many ticks of every table an epoch has read: files are taken in their order."""
    return min(int((manifest.positions.get(table) or {"files": 0})["files"]) for table in job.query.reads)


def shown(pond: millpond.Pond, job: Asked, committed: dict[int, float]) -> Shown:
    """The rows that stand at the end, each with the epoch that brought it."""
    first = min(committed)
    parts, at = [], []
    for delta in pond.changes(job.query.name, since=first):
        parts.append(delta.table)
        at.extend([committed[delta.epoch]] * delta.table.num_rows)
    if not parts:
        return Shown(pond.read(job.query.name), [])
    rows = pa.concat_tables(parts)
    gone = pa.compute.sum(pa.compute.less(rows["_w"], 1)).as_py()
    if gone:
        raise RuntimeError(f"{job.query.name} took back {gone} rows of windows that it had shown as closed")
    return Shown(rows.drop_columns(["_w"]), at)


def measured(job: Asked) -> Latency:
    began = time.time()
    committed: dict[int, float] = {}
    sights: list[tuple[float, int]] = []

    def seen(manifest: Manifest) -> None:
        committed[manifest.epoch] = time.time()
        sights.append((committed[manifest.epoch], ticks_in(manifest, job)))

    with work_folder("millpond") as work, Sampler(os.getpid()) as sampler:
        feed.folders(work / "in", job.query.reads)
        session = make_session(f"local[{job.cores}]")
        SparkEngine(session)  # checks the session and rehearses, as the first pond on it would
        pond = millpond.open(work / "pond", spark=session, parallelism=job.cores, on_epoch=seen, **SETTINGS)
        define(pond, job, work / "in")
        pond.start()
        startup = time.time() - began
        fed = feed.run(job.staged, work / "in", job.query.reads, job.feed.tick_ms)
        until = time.time() + SETTLE_S
        while sights[-1][1] < job.feed.ticks and time.time() < until:
            time.sleep(0.05)
        pond.stop()
        rows = shown(pond, job, committed) if job.windowed else None
        pond.close()
        session.stop()
    return command.outcome(
        job,
        "millpond",
        f"Millpond {millpond.__version__}",
        "the epoch's manifest is synced to disk and any reader finds the view",
        fed,
        sampler,
        startup,
        [Sight(at - fed.start, of_files(ticks, job.feed)) for at, ticks in sights if ticks],
        rows,
        {"durable": "fsync", **{name: str(value) for name, value in SETTINGS.items()}},
    )


def main() -> None:
    arguments = command.parser(__doc__ or "").parse_args()
    confine(arguments.cores)
    job = command.asked(arguments)
    measured(job).write(job.out)


if __name__ == "__main__":
    main()
