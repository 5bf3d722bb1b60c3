"""Spark Structured Streaming as a follower: the same by key, state in RocksDB with changelog checkpoints.

Committed is what is in the commit log of the checkpoint; its files are those of the offset log.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark
from pyspark.sql import functions as F

from benchmarks.latency import on_spark
from benchmarks.measure import confine
from benchmarks.peers import spark_structured
from benchmarks.recovery.follower import Commit, Follower, Seen, ours, told

SCHEMA = "auction BIGINT, price BIGINT, number BIGINT"


class SparkFollower(Follower):
    name = "spark"
    system = f"Spark Structured Streaming {pyspark.__version__}"
    committed = "the micro-batch is in the commit log of the checkpoint"

    def command(self, parallelism: int) -> tuple[Sequence[str], Mapping[str, str]]:
        how = (str(self.work), str(self.folder), str(self.place), str(self.cores), str(parallelism))
        return ours(__name__, *how), {}

    def seen(self) -> Seen:
        ready = told(self.place / "told").ready
        checkpoint = self.work / "checkpoint"
        if ready is None or not (checkpoint / "sources").is_dir():
            return Seen(ready, ())
        ticks = on_spark.ticks_by_batch(checkpoint)
        commits = [
            Commit(at, ticks[batch] - 1)
            for batch, at in sorted(on_spark.commits(checkpoint).items())
            if at >= ready and batch in ticks
        ]
        return Seen(ready, tuple(commits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("work", "folder", "place"):
        parser.add_argument(name, type=Path)
    parser.add_argument("cores", type=int)
    parser.add_argument("parallelism", type=int)
    asked = parser.parse_args()
    confine(asked.cores)
    settings = spark_structured.settings(asked.cores, asked.parallelism, asked.place / "local")
    spark = spark_structured.session({**settings, **on_spark.SETTINGS})
    (asked.place / "told").write_text(json.dumps({"ready": time.time()}) + "\n")
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 4).parquet(str(asked.folder))
    by_auction = rows.groupBy("auction").agg(
        F.count(F.lit(1)).alias("n"), F.sum("price").alias("total"), F.max("number").alias("newest")
    )
    running = (
        by_auction.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(asked.work / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    running.awaitTermination()


if __name__ == "__main__":
    main()
