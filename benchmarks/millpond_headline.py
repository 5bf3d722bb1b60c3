"""Millpond itself: the same query over the same files, on Spark, state durable (every commit synced to disk).

Start-up is the Spark session and its first, empty job; the run begins when the pond is opened and ends when
the last row is in a committed epoch.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow.parquet as pq

import millpond
from benchmarks import data
from benchmarks.measure import Sampler, confine
from benchmarks.outcome import Outcome, Span, over
from benchmarks.peers import command
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.session import make_session
from millpond.sources.files import FileSource


def run(folder: Path, pond_folder: Path, session: object, cores: int) -> millpond.Pond:
    pond = millpond.open(pond_folder, spark=session, parallelism=cores)
    bids = pond.stream("bids", FileSource(str(folder)))
    by_auction = bids.key_by("auction").aggregate(n="count(*)", total="sum(price)", id="by_auction")
    by_auction.view("by_auction")
    pond.drain()
    return pond


def measured(folder: Path, cores: int) -> Outcome:
    load, began = os.getloadavg()[0], time.time()
    with command.work_folder("millpond") as place, Sampler(os.getpid(), interval_seconds=0.05) as sampler:
        session = make_session(f"local[{cores}]")
        SparkEngine(session)  # checks the session and rehearses, as the first pond on it would
        started = time.time()
        pond = run(folder, place / "pond", session, cores)
        ended = time.time()
        epochs = pond.epoch
        rows = pond.head().counts["rows/bids"]
        pond.close()
        session.stop()
        state = sum(f.stat().st_size for f in (place / "pond").rglob("*") if f.is_file())
    return over(
        Span(load, began, started, ended),
        sampler.samples,
        name="millpond",
        system=f"Millpond {millpond.__version__}",
        rows=rows,
        cores=cores,
        checkpoints=epochs,
        settings={"parallelism": str(cores), "durable": "fsync", "bytes on disk": str(state)},
    )


def main() -> None:
    arguments = command.parser(__doc__ or "").parse_args()
    confine(arguments.cores)
    if arguments.verify:
        with command.work_folder("millpond") as place:
            session = make_session(f"local[{arguments.cores}]")
            pond = run(arguments.input, place / "pond", session, arguments.cores)
            pq.write_table(pond.read("by_auction"), arguments.verify)
            pond.close()
            session.stop()
        return
    measured(arguments.input, arguments.cores).write(arguments.out)
    print(data.count(arguments.input), "rows")


if __name__ == "__main__":
    main()
