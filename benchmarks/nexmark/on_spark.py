"""Spark Structured Streaming over the same files or topics: state in RocksDB with changelog checkpoints.

Law: as of `peers/spark_structured.py`, whose settings these are: a timed run has read every row of the tables
it reads, each in a committed micro-batch; both are checked. Timed runs write to the `noop` sink; verified
ones run the same plan into files. A query that Spark refuses is told with its message. State bytes are those
under `state` in the checkpoint at the end: snapshots and changelogs.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks import data, maven
from benchmarks.measure import Sampler, confine
from benchmarks.nexmark import command, events, queries
from benchmarks.nexmark.queries import Query
from benchmarks.nexmark.topics import Topics
from benchmarks.outcome import Outcome, Span, over
from benchmarks.peers import spark_structured
from benchmarks.peers.command import work_folder
from millpond.sources.nexmark_events import SCHEMAS

# What an update in this mode tells of is a new row for these columns; all other queries only append.
KEYS = {
    "q12": ("bidder", "starttime"),
    "q15": ("day",),
    "q16": ("channel", "day"),
    "q17": ("auction", "day"),
    "q18": ("bidder", "auction"),
    "q4": ("category",),
    "q6": ("seller",),
    "q9": ("id",),
}
OFFSETS_PER_TRIGGER = 4_000_000  # as many events as there are in the files of a trigger
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
_TYPES = {"int64": "BIGINT", "string": "STRING", "timestamp[ms]": "TIMESTAMP_NTZ"}


def settings(cores: int, scratch: Path, topics: Topics | None = None) -> dict[str, str]:
    found = {**spark_structured.settings(cores, cores, scratch), "spark.sql.session.timeZone": "UTC"}
    if topics is not None:
        jars = maven.dependencies(f"spark-kafka-{pyspark.__version__}", CONNECTOR)
        found["spark.jars"] = ",".join(str(jar) for jar in sorted(jars.iterdir()))
    return found


def messages(spark: SparkSession, topics: Topics, table: str, schema: str) -> DataFrame:
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", topics.brokers)
        .option("subscribe", topics.of(table))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
        .load()
    )
    row = F.from_json(stream["value"].cast("string"), schema).alias("row")
    return stream.select(row).select("row.*")


def tables(spark: SparkSession, folder: Path, files_per_trigger: int, topics: Topics | None = None) -> None:
    """The tables as views: streams with a watermark, and the side table as it is."""
    for name in events.TABLES:
        schema = ", ".join(f"{field.name} {_TYPES[str(field.type)]}" for field in SCHEMAS[name])
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", files_per_trigger)
        rows = stream.parquet(str(folder / name))
        if topics is not None:
            rows = messages(spark, topics, name, schema)
        timed = rows.withColumn("date_time", rows["date_time"].cast("timestamp"))
        timed.withWatermark("date_time", "4 seconds").createOrReplaceTempView(name)
    spark.read.parquet(str(folder / "side_input")).createOrReplaceTempView("side_input")


def started(spark: SparkSession, query: Query, checkpoint: Path, collect: Path | None) -> StreamingQuery:
    rows = spark.sql(queries.text("spark", query.name))
    writer = rows.writeStream.format("noop")
    if collect is not None:

        def keep(batch: DataFrame, number: int) -> None:
            batch.write.parquet(str(collect / f"batch={number}"))

        writer = rows.writeStream.foreachBatch(keep)
    return (
        writer.outputMode("update" if query.name in KEYS else "append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measured(
    query: Query, folder: Path, cores: int, files_per_trigger: int, topics: Topics | None
) -> Outcome:
    load, began = os.getloadavg()[0], time.time()
    with work_folder("spark") as work, Sampler(os.getpid()) as sampler:
        wanted = settings(cores, work / "local", topics)
        spark = spark_structured.session(wanted)
        tables(spark, folder, files_per_trigger, topics)
        start = time.time()
        running = spark_structured.finished(started(spark, query, work / "checkpoint", None))
        end = time.time()
        read = sum(progress.numInputRows for progress in running.recentProgress)
        commits = sum(1 for path in (work / "checkpoint" / "commits").iterdir() if path.name.isdigit())
        spark.stop()
        state = _size(work / "checkpoint" / "state")
    there = sum(data.count(folder / table) for table in query.reads if table in events.TABLES)
    if read % there:  # a table that a query reads twice is read twice
        raise RuntimeError(f"{query.name} read {read} rows of {there}")
    shown = {name: value for name, value in wanted.items() if name not in ("spark.local.dir", "spark.jars")}
    return over(
        Span(load, began, start, end),
        sampler.samples,
        name="spark",
        system=f"Spark Structured Streaming {pyspark.__version__}",
        rows=events.count(folder),
        cores=cores,
        checkpoints=commits,
        settings={**shown, "maxFilesPerTrigger": str(files_per_trigger)},
        query=query.name,
        state_bytes=state,
    )


def verified(spark: SparkSession, query: Query) -> pa.Table | str:
    """What stands at the end: all rows that were appended, or of each key the last that was told."""
    with work_folder("spark-verify") as work:
        collect = work / "collect"
        collect.mkdir()
        try:
            spark_structured.finished(started(spark, query, work / "checkpoint", collect))
        except PySparkException as error:  # told in the table of results
            return str(error).split("JVM stacktrace")[0]
        keys = KEYS.get(query.name)
        last = f"QUALIFY batch = max(batch) OVER (PARTITION BY {', '.join(keys)})" if keys else ""
        return (
            duckdb.connect()
            .sql(
                f"SELECT * EXCLUDE (batch) FROM (SELECT * FROM read_parquet('{collect}/*/*.parquet',"
                f" hive_partitioning = true, hive_types = {{'batch': BIGINT}}) {last})"
            )
            .to_arrow_table()
        )


def main() -> None:
    parser = command.parser(__doc__ or "")
    parser.add_argument("--files-per-trigger", type=int, default=1)
    arguments = parser.parse_args()
    confine(arguments.cores)
    topics, files = command.topics(arguments), arguments.files_per_trigger
    if not arguments.verify:
        for query, place in command.asked(arguments):
            measured(query, arguments.input, arguments.cores, files, topics).write(place)
        return
    with work_folder("spark-verify") as work:
        try:
            wanted = settings(arguments.cores, work / "local", topics)
        except maven.MissingError as error:  # told in the table of results
            for _, place in command.asked(arguments):
                command.hand_over(str(error), place)
            return
        spark = spark_structured.session(wanted)
        tables(spark, arguments.input, files, topics)
        for query, place in command.asked(arguments):
            command.hand_over(verified(spark, query), place)
        spark.stop()


if __name__ == "__main__":
    main()
