"""Millpond's side of the keyed-state benchmark: a `process` step on Spark, every commit synced to disk.

What the step emits goes through a filter that no row passes, so nothing but its state is kept. Start-up is
the Spark session and its first, empty job; the run begins when the pond is opened and ends when the last row
is in a committed epoch. For verification the emitted rows are kept in a view instead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import millpond
from benchmarks.measure import Sampler, confine
from benchmarks.outcome import Outcome, Span, over
from benchmarks.peers import command, emitted
from millpond import Process, ValueState
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.session import make_session
from millpond.flow.keyed_stream import KeyedStream
from millpond.flow.stream import Stream
from millpond.sources.files import FileSource

OUTPUT = {"auction": int, "n": int, "total": int}


class Count(Process):
    n: ValueState[int] = ValueState(int, default=0)
    total: ValueState[int] = ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> tuple[int, int, int]:
        self.n.value += 1
        self.total.value += row.price
        return row.auction, self.n.value, self.total.value


@dataclass
class Kept:
    n: int = 0
    total: int = 0


class CountRecord(Process):
    """The same with one state of two fields."""

    kept: ValueState[Kept] = ValueState(Kept, default=Kept)

    def on_row(self, row: Any, ctx: Any) -> tuple[int, int, int]:
        kept = self.kept.value
        kept.n += 1
        kept.total += row.price
        self.kept.value = kept
        return row.auction, kept.n, kept.total


def count(
    row: Any,
    n: Any = ValueState(int, default=0),
    total: Any = ValueState(int, default=0),
) -> tuple[int, int, int]:
    n.value += 1
    total.value += row.price
    return row.auction, n.value, total.value


def count_batch(
    batch: Any,
    n: Any = ValueState(int, default=0),
    total: Any = ValueState(int, default=0),
) -> pa.Table:
    """The same for all rows of a task at once: rows come by key, so sums within a key are differences."""
    first, last = batch.starts[:-1][batch.key_of], batch.starts[1:] - 1
    sums = np.concatenate([[0], np.cumsum(batch.rows["price"].to_numpy())])
    counts = n.values.to_numpy()[batch.key_of] + np.arange(len(batch)) - first + 1
    totals = total.values.to_numpy()[batch.key_of] + sums[1:] - sums[first]
    n.values, total.values = counts[last], totals[last]
    return pa.table({"auction": batch.rows["auction"], "n": counts, "total": totals})


FORMS: dict[str, Callable[[KeyedStream], Stream]] = {
    "class": lambda keyed: keyed.process(Count, OUTPUT, id="count"),
    "record": lambda keyed: keyed.process(CountRecord, OUTPUT, id="count"),
    "function": lambda keyed: keyed.process(count, OUTPUT, id="count"),
    "batch": lambda keyed: keyed.process_batch(count_batch, OUTPUT, id="count"),
}
NAMES = {form: "millpond" if form == "class" else f"millpond-{form}" for form in FORMS}


def run(folder: Path, pond_folder: Path, session: object, cores: int, form: str, keep: bool) -> millpond.Pond:
    pond = millpond.open(pond_folder, spark=session, parallelism=cores)
    counted = FORMS[form](pond.stream("bids", FileSource(str(folder))).key_by("auction"))
    (counted if keep else counted.filter("n < 0 AND total < 0 AND auction < 0")).view("emitted")
    pond.drain()
    return pond


def measured(folder: Path, cores: int, form: str) -> Outcome:
    load, began = os.getloadavg()[0], time.time()
    with command.work_folder(NAMES[form]) as place, Sampler(os.getpid(), interval_seconds=0.05) as sampler:
        session = make_session(f"local[{cores}]")
        SparkEngine(session)  # checks the session and rehearses, as the first pond on it would
        started = time.time()
        pond = run(folder, place / "pond", session, cores, form, keep=False)
        ended = time.time()
        epochs = pond.epoch
        rows = pond.head().counts["rows/bids"]
        pond.close()
        session.stop()
        state = sum(f.stat().st_size for f in (place / "pond").rglob("*") if f.is_file())
    return over(
        Span(load, began, started, ended),
        sampler.samples,
        name=NAMES[form],
        system=f"Millpond {millpond.__version__}",
        rows=rows,
        cores=cores,
        checkpoints=epochs,
        settings={
            "parallelism": str(cores),
            "form": form,
            "durable": "fsync",
            "bytes on disk": str(state),
        },
    )


def main() -> None:
    parser = command.parser(__doc__ or "")
    parser.add_argument("--form", choices=sorted(FORMS), default="class")
    arguments = parser.parse_args()
    confine(arguments.cores)
    if not arguments.verify:
        measured(arguments.input, arguments.cores, arguments.form).write(arguments.out)
        return
    with command.work_folder("millpond-verify") as place:
        session = make_session(f"local[{arguments.cores}]")
        pond = run(arguments.input, place / "pond", session, arguments.cores, arguments.form, keep=True)
        collect = place / "collect"
        collect.mkdir()
        pq.write_table(pond.read("emitted").select(list(OUTPUT)), collect / "emitted.parquet")
        pond.close()
        session.stop()
        pq.write_table(emitted.final(collect), arguments.verify)


if __name__ == "__main__":
    main()
