"""Spark Structured Streaming: the same query, state in RocksDB with changelog checkpoints.

Law: a timed run has read every row of the input, each in a committed micro-batch; both are checked. Timed
runs write to the `noop` sink; verification runs the same plan into files; the last batch to name a key wins.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks import data
from benchmarks.measure import Sampler, confine
from benchmarks.outcome import Outcome, Span, over
from benchmarks.peers import command

SCHEMA = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP_NTZ"
_STORE = "spark.sql.streaming.stateStore"


def settings(cores: int, shuffle_partitions: int, scratch: Path) -> dict[str, str]:
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "4g",
        # The throughput collector: a tenth less processor time here than the default one.
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        # Counting rows costs a lookup per write, and the default cache of 8 MB cannot hold this state.
        f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",
        f"{_STORE}.rocksdb.blockCacheSizeMB": "512",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
    }


def session(wanted: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName("bids")
    for name, value in wanted.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    made.range(1).count()  # executors, code generation and the class path are start-up, not the query
    return made


def aggregate(spark: SparkSession, folder: Path, files_per_trigger: int) -> DataFrame:
    bids = (
        spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_per_trigger).parquet(str(folder))
    )
    return bids.groupBy("auction").agg(F.count(F.lit(1)).alias("n"), F.sum("price").alias("total"))


def finished(query: StreamingQuery) -> StreamingQuery:
    query.awaitTermination()
    failure = query.exception()
    if failure is not None:
        raise failure
    return query


def batches(query: StreamingQuery, checkpoint: Path, rows: int) -> int:
    """Committed micro-batches; refuses a run that read another number of rows than the input holds."""
    read = sum(json.loads(progress.json)["numInputRows"] for progress in query.recentProgress)
    if read != rows:
        raise RuntimeError(f"the query read {read} rows of {rows}")
    return sum(1 for path in (checkpoint / "commits").iterdir() if path.name.isdigit())


def measured(folder: Path, cores: int, files_per_trigger: int, shuffle_partitions: int) -> Outcome:
    load, began = os.getloadavg()[0], time.time()
    rows = data.count(folder)
    with command.work_folder("spark") as work, Sampler(os.getpid()) as sampler:
        wanted = settings(cores, shuffle_partitions, work / "local")
        spark = session(wanted)
        start = time.time()
        query = finished(
            aggregate(spark, folder, files_per_trigger)
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(work / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        end = time.time()
        commits = batches(query, work / "checkpoint", rows)
        spark.stop()
    shown = {name: value for name, value in wanted.items() if name != "spark.local.dir"}
    return over(
        Span(load, began, start, end),
        sampler.samples,
        name="spark",
        system=f"Spark Structured Streaming {pyspark.__version__}",
        rows=rows,
        cores=cores,
        checkpoints=commits,
        settings={**shown, "maxFilesPerTrigger": str(files_per_trigger), "outputMode": "update"},
    )


def verified(folder: Path, cores: int, files_per_trigger: int, shuffle_partitions: int) -> pa.Table:
    """The final row of every key, from what an update-mode sink was given."""
    with command.work_folder("spark-verify") as work:
        spark = session(settings(cores, shuffle_partitions, work / "local"))
        updates = work / "updates"
        updates.mkdir()

        def keep(batch: DataFrame, number: int) -> None:
            batch.write.parquet(str(updates / f"batch={number}"))

        finished(
            aggregate(spark, folder, files_per_trigger)
            .writeStream.foreachBatch(keep)
            .outputMode("update")
            .option("checkpointLocation", str(work / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        spark.stop()
        return (
            duckdb.connect()
            .sql(
                "SELECT auction, arg_max(n, batch) AS n, arg_max(total, batch) AS total "
                "FROM read_parquet(?, hive_partitioning = true) GROUP BY auction",
                params=[str(updates / "*" / "*.parquet")],
            )
            .to_arrow_table()
        )


def main() -> None:
    parser = command.parser(__doc__ or "")
    parser.add_argument("--files-per-trigger", type=int, default=1)
    parser.add_argument("--shuffle-partitions", type=int, default=2)
    arguments = parser.parse_args()
    confine(arguments.cores)
    how = (arguments.input, arguments.cores, arguments.files_per_trigger, arguments.shuffle_partitions)
    if arguments.verify:
        pq.write_table(verified(*how), arguments.verify)
    else:
        measured(*how).write(arguments.out)


if __name__ == "__main__":
    main()
