"""Spark Structured Streaming on the cluster: the driver of one run, in a process of its own.

State is in RocksDB with changelog checkpoints, as in the headline benchmark; the sink is `noop`.  Before
anything is timed, the same plan writes its updates to the driver, and they are compared with the batch
answer.  The floor is the time of a micro-batch with one small file, as Spark reports it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.cluster.task import WARM, Answered, CatchUp, Floor, Task, compare, floor_of, timed
from benchmarks.peers import spark_structured

FILES_PER_TRIGGER = 4  # of the backlog: the best of those that the headline benchmark tries
S3A = "spark.hadoop.fs.s3a"


def settings(task: Task) -> dict[str, str]:
    found = {**spark_structured.settings(2, 2, Path(task.local)), **task.conf, "spark.master": task.master}
    if task.s3 is not None:
        found |= {
            f"{S3A}.endpoint": task.s3["endpoint"],
            f"{S3A}.endpoint.region": task.s3["region"],
            f"{S3A}.path.style.access": "true",
            f"{S3A}.connection.ssl.enabled": "false",
            f"{S3A}.aws.credentials.provider": "software.amazon.awssdk.auth.credentials."
            "EnvironmentVariableCredentialsProvider",
        }
    return found


def address(place: str) -> str:
    """How Hadoop names a place.

    >>> address("s3://bucket/in"), address("/tmp/in")
    ('s3a://bucket/in', '/tmp/in')
    """
    return place.replace("s3://", "s3a://", 1)


def aggregate(spark: SparkSession, folder: str, files_per_trigger: int) -> DataFrame:
    bids = spark.readStream.schema(spark_structured.SCHEMA).option("maxFilesPerTrigger", files_per_trigger)
    grouped = bids.parquet(address(folder)).groupBy("auction")
    return grouped.agg(F.count(F.lit(1)).alias("n"), F.sum("price").alias("total"))


def finished(frame: DataFrame, task: Task, name: str, keep: Any = None) -> list[dict[str, Any]]:
    """Run a query to the end of its input; what Spark tells of each micro-batch that read rows."""
    writer = frame.writeStream.outputMode("update").trigger(availableNow=True)
    writer = writer.format("noop") if keep is None else writer.foreachBatch(keep)
    query = writer.option("checkpointLocation", address(f"{task.place}/spark-{name}")).start()
    spark_structured.finished(query)
    told = [json.loads(progress.json) for progress in query.recentProgress]
    return [one for one in told if one["numInputRows"]]


def verify(task: Task, spark: SparkSession) -> None:
    got: dict[int, tuple[int, int]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        got.update({row.auction: (row.n, row.total) for row in batch.collect()})

    finished(aggregate(spark, task.small, 20), task, "verify", keep)
    compare("spark", got, task.small_files)


def floor(task: Task, spark: SparkSession) -> Floor:
    told, _, cpu_s = timed(lambda: finished(aggregate(spark, task.small, 1), task, "floor"))
    counted = told[WARM:]
    ms = [float(one["durationMs"]["triggerExecution"]) for one in counted]
    return floor_of(ms, [one["durationMs"] for one in counted], cpu_s, len(told))


def catch_up(task: Task, spark: SparkSession) -> CatchUp:
    frame = aggregate(spark, task.large, FILES_PER_TRIGGER)
    told, seconds, cpu_s = timed(lambda: finished(frame, task, "backlog"))
    return CatchUp(sum(one["numInputRows"] for one in told), seconds, len(told), cpu_s)


def main() -> None:
    task = Task.given()
    spark = spark_structured.session(settings(task))
    verify(task, spark)
    print(Answered(floor(task, spark), catch_up(task, spark)).to_json())
    spark.stop()


if __name__ == "__main__":
    main()
