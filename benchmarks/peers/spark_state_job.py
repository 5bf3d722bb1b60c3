"""The transformWithState job; runs under the Python that has pyspark, protobuf and pandas.

`form` says how: "record" reads and updates the state for every record; "once" reads it when Spark calls with
the rows of a key and updates it after the last, by hand; "pandas" is that with a frame in place of rows.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

INPUT = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP_NTZ"
STATE = "n BIGINT, total BIGINT"
OUTPUT = "auction BIGINT, n BIGINT, total BIGINT"


class Kept(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.kept = handle.getValueState("kept", STATE)

    def close(self) -> None:
        pass


class EachRecord(Kept):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            n, total = self.kept.get() or (0, 0)
            n, total = n + 1, total + row.price
            self.kept.update((n, total))
            yield Row(auction=key[0], n=n, total=total)


class OnceACall(Kept):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n, total = self.kept.get() or (0, 0)
        for row in rows:
            n, total = n + 1, total + row.price
            yield Row(auction=key[0], n=n, total=total)
        self.kept.update((n, total))


class Frames(Kept):
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        n, total = self.kept.get() or (0, 0)
        for frame in rows:
            totals = frame["price"].cumsum() + total
            counts = range(n + 1, n + 1 + len(frame))
            yield pd.DataFrame({"auction": key[0], "n": counts, "total": totals})
            n, total = n + len(frame), int(totals.iloc[-1])
        self.kept.update((n, total))


FORMS = {"record": EachRecord, "once": OnceACall, "pandas": Frames}


def emitted(spark: SparkSession, folder: str, files_per_trigger: int, form: str) -> DataFrame:
    bids = spark.readStream.schema(INPUT).option("maxFilesPerTrigger", files_per_trigger).parquet(folder)
    keyed = bids.select("auction", "price").groupBy("auction")
    do = keyed.transformWithStateInPandas if form == "pandas" else keyed.transformWithState
    return do(FORMS[form](), OUTPUT, "Append", "None")


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder.appName("keyed-state")
    for name, value in task["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Executors, code generation and the Python workers are start-up, not the query.
    spark.sparkContext.parallelize(range(8), 2).map(lambda x: x + 1).collect()
    started = time.time()
    rows = emitted(spark, task["input"], task["files_per_trigger"], task["form"])
    writer = rows.writeStream.format("noop")
    if task["collect"]:

        def keep(batch: DataFrame, number: int) -> None:
            batch.write.parquet(f"{task['collect']}/batch={number}")

        writer = rows.writeStream.foreachBatch(keep)
    checkpoint = Path(task["work"], "checkpoint")
    query = (
        writer.outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ended = time.time()
    read = sum(json.loads(progress.json)["numInputRows"] for progress in query.recentProgress)
    if read != task["rows"]:
        raise RuntimeError(f"the query read {read} rows of {task['rows']}")
    commits = sum(1 for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    Path(task["clock"]).write_text(json.dumps({"started": started, "ended": ended, "commits": commits}))
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()  # it goes when nobody talks to it; what follows must not find it still cleaning up
    java.wait()


main()
