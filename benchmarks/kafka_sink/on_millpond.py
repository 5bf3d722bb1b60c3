"""Millpond: a source, a view and an exactly-once sink on Spark, every commit synced to disk.

Law: the run begins when the pond may read its first row, and ends when the sink has committed the last.
The view is stored, too: Flink keeps no rows.
"""

from __future__ import annotations

import os
import time

import pyarrow as pa

import millpond
from benchmarks.kafka_sink import task
from benchmarks.kafka_sink.task import COLUMNS, Task
from benchmarks.measure import Sampler, confine
from benchmarks.outcome import Outcome, Span, over
from benchmarks.peers.command import work_folder
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.session import make_session
from millpond.sinks.kafka import KafkaSink
from millpond.sources.kafka import KafkaSource


def measured(wanted: Task) -> Outcome:
    load, began = os.getloadavg()[0], time.time()
    with work_folder("millpond-kafka") as place, Sampler(os.getpid(), interval_seconds=0.05) as sampler:
        session = make_session(f"local[{wanted.cores}]")
        SparkEngine(session)  # checks the session and rehearses, as the first pond on it would
        with millpond.open(place / "pond", spark=session, parallelism=wanted.cores) as pond:
            schema = pa.schema([(name, pa.int64()) for name in COLUMNS])
            bids = pond.stream("bid", KafkaSource(wanted.brokers, wanted.read, schema))
            bids.view("bids").sink("out", KafkaSink(wanted.brokers, wanted.write), mode="append")
            started = time.time()
            pond.drain()
            ended = time.time()
            epochs = pond.epoch
        session.stop()
    return over(
        Span(load, began, started, ended),
        sampler.samples,
        name="millpond",
        system=f"Millpond {millpond.__version__}",
        rows=wanted.rows,
        cores=wanted.cores,
        checkpoints=epochs,
        settings={"parallelism": str(wanted.cores), "durable": "fsync", "guarantee": "exactly_once"},
    )


def main() -> None:
    wanted = task.from_command_line(__doc__ or "")
    confine(wanted.cores)
    measured(wanted).write(wanted.out)


if __name__ == "__main__":
    main()
