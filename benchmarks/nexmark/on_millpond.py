"""Millpond: a query over files or topics as a view on Spark, every commit synced to disk.

Law: what is timed is what was verified, but for the last step: timed, the rows meet a filter that asks for
every column and lets none pass, so that nothing but the state of the query is kept; verified, they are the
view. Start-up is the Spark session with its rehearsal, the engine's own first job (Spark's is a first count),
and the query bound; the run begins when the pond may read its first row, as Flink's begins when its first
task runs, and ends when the last row is in a committed epoch.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa

import millpond
from benchmarks import data
from benchmarks.measure import Sampler, confine
from benchmarks.nexmark import command, events, queries
from benchmarks.nexmark.queries import ON_CLOSE, Query
from benchmarks.nexmark.topics import Topics
from benchmarks.outcome import Outcome, Span, over
from benchmarks.peers.command import work_folder
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.session import make_session
from millpond.errors import MillpondError
from millpond.flow.stream import Stream
from millpond.sources.files import FileSource
from millpond.sources.kafka import KafkaSource
from millpond.sources.nexmark_events import SCHEMAS
from millpond.sql.binding.catalog import Catalog
from millpond.sql.lowering.query import lower_query
from millpond.sql.text.emit_clause import Emission


def define(pond: millpond.Pond, query: Query, folder: Path, keep: bool, topics: Topics | None = None) -> None:
    """The tables that the query reads, and the query as a view of its own name."""
    for table in query.reads:
        if table not in events.TABLES:
            pond.stream(table, FileSource(str(folder / table)))
            continue
        source = (
            FileSource(str(folder / table))
            if topics is None
            else KafkaSource(topics.brokers, topics.of(table), SCHEMAS[table])
        )
        pond.stream(table, source, event_time="date_time", delay="4s")
    text = queries.text("millpond", query.name)
    emission = Emission(on_close=text.endswith(ON_CLOSE))
    text = text.removesuffix(ON_CLOSE).strip()
    catalog = Catalog(pond.plan)
    builder = pond._builder
    found = lower_query(builder, catalog.binder, catalog.relations(), query.name, text, emission)
    rows = Stream(builder, found.step)
    if not keep:
        none = " AND ".join(f'"{column.name}" IS NULL' for column in found.columns)
        rows = rows.filter(none, id="discarded")
    rows.view(query.name)


def opened(
    query: Query,
    folder: Path,
    place: Path,
    session: object,
    cores: int,
    keep: bool,
    topics: Topics | None = None,
) -> millpond.Pond:
    pond = millpond.open(place, spark=session, parallelism=cores)
    define(pond, query, folder, keep, topics)
    return pond


def measured(query: Query, folder: Path, cores: int, topics: Topics | None = None) -> Outcome:
    load, began = os.getloadavg()[0], time.time()
    with work_folder("millpond") as place, Sampler(os.getpid(), interval_seconds=0.05) as sampler:
        session = make_session(f"local[{cores}]")
        SparkEngine(session)  # checks the session and rehearses, as the first pond on it would
        pond = opened(query, folder, place / "pond", session, cores, False, topics)
        started = time.time()
        pond.drain()
        ended = time.time()
        epochs, counts = pond.epoch, pond.head().counts
        state = sum(one.bytes for one in pond.states())
        pond.close()
        session.stop()
    for table in query.reads:
        read, there = counts[f"rows/{table}"], data.count(folder / table)
        if read != there:
            raise RuntimeError(f"{query.name} read {read} rows of {there} of {table}")
    return over(
        Span(load, began, started, ended),
        sampler.samples,
        name="millpond",
        system=f"Millpond {millpond.__version__}",
        rows=events.count(folder),
        cores=cores,
        checkpoints=epochs,
        settings={"parallelism": str(cores), "durable": "fsync"},
        query=query.name,
        state_bytes=state,
    )


def verified(
    query: Query, folder: Path, session: object, cores: int, topics: Topics | None = None
) -> pa.Table | str:
    """The view at the end, or why there is none."""
    with work_folder("millpond-verify") as place:
        try:
            pond = opened(query, folder, place / "pond", session, cores, True, topics)
            pond.drain()
        except MillpondError as error:  # told in the table of results, as the refusals of peers are
            return str(error)
        failed = pond.errors()
        if failed.num_rows:
            raise RuntimeError(f"{query.name} has error rows, such as {failed.slice(0, 1).to_pylist()}")
        found = pond.read(query.name)
        pond.close()
    return found


def main() -> None:
    arguments = command.parser(__doc__ or "").parse_args()
    confine(arguments.cores)
    topics = command.topics(arguments)
    if not arguments.verify:
        for query, place in command.asked(arguments):
            measured(query, arguments.input, arguments.cores, topics).write(place)
        return
    session = make_session(f"local[{arguments.cores}]")
    for query, place in command.asked(arguments):
        command.hand_over(verified(query, arguments.input, session, arguments.cores, topics), place)
    session.stop()


if __name__ == "__main__":
    main()
