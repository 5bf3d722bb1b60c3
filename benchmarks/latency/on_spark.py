"""Spark Structured Streaming: micro-batches one after the other, state in RocksDB with changelog checkpoints.

Law: committed means that the micro-batch is in the commit log of its checkpoint, timed by that file; its
events are those of the files that the offset log gives it. Rows of windows are in the files of the
exactly-once sink and count from the same commit. A query without windows writes to the `noop` sink.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.latency import command, feed
from benchmarks.latency.age import Sight
from benchmarks.latency.command import SETTLE_S, Asked, Shown, of_files
from benchmarks.latency.feed import tick_of
from benchmarks.latency.outcome import Latency
from benchmarks.measure import Sampler, confine
from benchmarks.nexmark import on_spark
from benchmarks.peers import spark_structured
from benchmarks.peers.command import work_folder
from millpond.sources.nexmark_events import SCHEMAS

_TYPES = {"int64": "BIGINT", "string": "STRING", "timestamp[ms]": "TIMESTAMP_NTZ"}
_NEVER = "1000000"
SETTINGS = {
    # Every log entry is kept as it was written, for it is read when the run is over; and none is compacted.
    "spark.sql.streaming.minBatchesToRetain": _NEVER,
    "spark.sql.streaming.fileSource.log.compactInterval": _NEVER,
    "spark.sql.streaming.fileSink.log.compactInterval": _NEVER,
    "spark.sql.streaming.pollingDelay": "10ms",
}


def started(spark: SparkSession, job: Asked, folder: Path, work: Path) -> StreamingQuery:
    for table in job.query.reads:
        schema = ", ".join(f"{field.name} {_TYPES[str(field.type)]}" for field in SCHEMAS[table])
        rows = spark.readStream.schema(schema).parquet(str(folder / table))
        timed = rows.withColumn("date_time", rows["date_time"].cast("timestamp"))
        timed.withWatermark("date_time", "4 seconds").createOrReplaceTempView(table)
    writer = spark.sql(command.text("spark", job.query)).writeStream
    writer = (
        writer.format("json").option("path", str(work / "out")) if job.windowed else writer.format("noop")
    )
    return (
        writer.outputMode("append")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON lines of an entry of a metadata log, after its version."""
    for line in path.read_text().splitlines()[1:]:
        yield json.loads(line)


def _numbered(folder: Path) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    return {int(path.name): path for path in folder.iterdir() if path.name.isdigit()}


def ticks_by_batch(checkpoint: Path) -> dict[int, int]:
    """How many ticks every source had given, by batch."""
    read: list[dict[int, int]] = []  # by source: ticks up to each entry of its log
    for source in sorted((checkpoint / "sources").iterdir(), key=lambda path: int(path.name)):
        most, upto = 0, {}
        for number, path in sorted(_numbered(source).items()):
            most = max([most, *(tick_of(entry["path"]) + 1 for entry in _entries(path))])
            upto[number] = most
        read.append(upto)
    found: dict[int, int] = {}
    for batch, path in sorted(_numbered(checkpoint / "offsets").items()):
        _metadata, *offsets = list(path.read_text().splitlines()[1:])
        ticks = []
        # A table that a query reads twice has one log and an offset for each reading.
        logs = read * len(offsets) if len(read) == 1 else read
        for upto, offset in zip(logs, offsets, strict=True):
            entry = None if offset == "-" else json.loads(offset)["logOffset"]
            ticks.append(0 if entry is None else upto.get(entry, 0))
        found[batch] = min(ticks)
    return found


def commits(checkpoint: Path) -> dict[int, float]:
    return {batch: path.stat().st_mtime for batch, path in _numbered(checkpoint / "commits").items()}


def shown(job: Asked, work: Path, committed: dict[int, float], columns: list[str]) -> Shown:
    rows: list[dict[str, Any]] = []
    at: list[float] = []
    for batch, log in sorted(_numbered(work / "out" / "_spark_metadata").items()):
        if batch not in committed:
            continue  # the sink has it, the checkpoint not yet
        for entry in _entries(log):
            lines = Path(entry["path"].removeprefix("file://")).read_text().splitlines()
            rows.extend(json.loads(line, parse_int=str, parse_float=str) for line in lines)
            at.extend([committed[batch]] * len(lines))
    made = [pa.array((row.get(name) for row in rows), pa.string()) for name in columns]
    return Shown(pa.table(made, names=columns), at)


def _all_closed(job: Asked, found: Shown, start: float) -> bool:
    closed = command.closings(job.query, job.feed, found, start)
    return max((one.newest for one in closed), default=0.0) >= command.last_closed(job)


def measured(job: Asked) -> Latency:
    began = time.time()
    with work_folder("spark") as work, Sampler(os.getpid()) as sampler:
        feed.folders(work / "in", job.query.reads)
        wanted = {**on_spark.settings(job.cores, work / "local"), **SETTINGS}
        spark = spark_structured.session(wanted)
        columns = []
        running = started(spark, job, work / "in", work)
        if job.windowed:
            columns = spark.sql(command.text("spark", job.query)).columns
        while not running.status["message"].startswith("Waiting for"):  # for data to arrive
            time.sleep(0.05)
        startup = time.time() - began
        fed = feed.run(job.staged, work / "in", job.query.reads, job.feed.tick_ms)
        until = time.time() + SETTLE_S
        while time.time() < until:
            failure = running.exception()
            if failure is not None:
                raise failure
            done = commits(work / "checkpoint")
            ticks = ticks_by_batch(work / "checkpoint")
            read = max((ticks.get(batch, 0) for batch in done), default=0) >= job.feed.ticks
            # The windows that the last events close are shown by a batch after theirs.
            if read and (not job.windowed or _all_closed(job, shown(job, work, done, columns), fed.start)):
                break
            time.sleep(0.2)
        running.stop()
        done, ticks = commits(work / "checkpoint"), ticks_by_batch(work / "checkpoint")
        rows = shown(job, work, done, columns) if job.windowed else None
        spark.stop()
    settings = {name: value for name, value in wanted.items() if name != "spark.local.dir"}
    return command.outcome(
        job,
        "spark",
        f"Spark Structured Streaming {pyspark.__version__}",
        "the micro-batch is in the commit log of the checkpoint",
        fed,
        sampler,
        startup,
        [
            Sight(at - fed.start, of_files(ticks[batch], job.feed))
            for batch, at in done.items()
            if ticks[batch]
        ],
        rows,
        {**settings, "trigger": "processingTime 0 s"},
    )


def main() -> None:
    arguments = command.parser(__doc__ or "").parse_args()
    confine(arguments.cores)
    job = command.asked(arguments)
    measured(job).write(job.out)


if __name__ == "__main__":
    main()
