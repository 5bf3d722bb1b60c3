"""Ponds in Spark: `spark.read`, `readStream`, `write` and `writeStream` with format "millpond"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F

import millpond

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[millpond.Pond]:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        rows = pond.table("t", {"k": int, "n": int, "s": str}, key="k")
        rows.key_by("n").aggregate(rows="count(*)").view("counts")
        pond.table("log", {"s": str})
        pond.insert("t", [{"k": k, "n": k % 3, "s": f"{k}"} for k in range(50)])
        pond.drain()
        yield pond


def place(pond: millpond.Pond) -> str:
    return pond.store.uri.removeprefix("file://")


@pytest.fixture
def pushdown(session: Any) -> Iterator[None]:
    session.conf.set(PUSHDOWN, "true")
    yield
    session.conf.unset(PUSHDOWN)


@pytest.mark.slow
def test_queries_of_one_dataframe(session: Any, pond: millpond.Pond, pushdown: None) -> None:
    """They read one epoch, and the filters that Spark pushes for one do not disturb the others."""
    df = session.read.format("millpond").option("view", "t").option("partitions", 3).load(place(pond))
    pond.insert("t", {"k": 100, "n": 0, "s": ""})
    pond.drain()
    both = df.filter("k = 1").union(df.filter("k in (2, 3)")).union(df.filter("k >= 49")).select("s", "k")
    assert sorted(both.collect()) == [("1", 1), ("2", 2), ("3", 3), ("49", 49)]
    assert df.count() == 50


@pytest.mark.slow
def test_filters_that_are_pushed(session: Any, pond: millpond.Pond, pushdown: None) -> None:
    reader = session.read.format("millpond").option("view", "t").option("pushFilters", "true")
    assert reader.load(place(pond)).filter("k = 7").collect() == [(7, 1, "7")]


def test_without_push_down(session: Any, pond: millpond.Pond) -> None:
    df = session.read.format("millpond").option("view", "counts").load(place(pond))
    assert df.filter("n = 0").collect() == [(0, 17)]
    with pytest.raises(AnalysisException, match=r"(?s)no view named 'x'.*views are counts, log, t"):
        session.read.format("millpond").option("view", "x").load(place(pond))


def run(writer: Any, checkpoint: Path, path: str | None = None) -> None:
    """Process what is available and end, as a scheduled job does.

    Spark waits ten seconds for the Python process of a stream to start; where that is too short, the query is
    started again from its checkpoint.
    """
    for tries in (3, 2, 1):
        try:
            query = (
                writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start(path)
            )
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            if tries == 1 or "failed to connect back" not in str(error):
                raise


def stream(session: Any, pond: millpond.Pond, **options: Any) -> Any:
    return session.readStream.format("millpond").options(**options).load(place(pond))


def test_changes_of_a_view_from_a_checkpoint(session: Any, pond: millpond.Pond, tmp_path: Path) -> None:
    """Three runs of one query: the changes add up to the view, and the last run has only the last epochs."""
    batches: list[list[Any]] = []

    def collect(df: Any, number: int) -> None:
        batches.append(df.collect())

    seen: dict[tuple[int, int], int] = {}
    for k, n in [(0, 0), (1, 2), (90, 0)]:
        pond.insert("t", {"k": k, "n": n, "s": "x"})
        pond.drain()
        df = stream(session, pond, view="counts", mode="changelog", maxEpochsPerTrigger=1)
        run(df.writeStream.foreachBatch(collect), tmp_path / "checkpoint")
        for row in [row for batch in batches for row in batch]:
            seen[row.n, row["rows"]] = seen.get((row.n, row["rows"]), 0) + row._w
        batches.clear()
        wanted = {(row["n"], row["rows"]): 1 for row in pond.read("counts").to_pylist()}
        assert {key: weight for key, weight in seen.items() if weight} == wanted


def test_batch_writes(session: Any, pond: millpond.Pond) -> None:
    df = session.range(0, 1000, numPartitions=4).select(
        F.col("id").alias("k"), F.lit(5).cast("long").alias("n"), F.lit("s").alias("s")
    )
    writer = df.write.format("millpond").option("table", "t").mode("append")
    writer.save(place(pond))
    pond.drain()
    assert pond.read("counts").to_pylist() == [{"n": 5, "rows": 1000}]

    fails = F.expr("if(k = 500, raise_error('this task fails'), s)")
    more = df.withColumn("s", fails).withColumn("k", F.col("k") + 1000)
    with pytest.raises(Exception, match="this task fails"):
        more.write.format("millpond").option("table", "t").mode("append").save(place(pond))
    pond.drain()
    assert pond.read("t").num_rows == 1000, "a write that fails leaves nothing"


def test_each_batch_of_a_query_counts_once(session: Any, pond: millpond.Pond, tmp_path: Path) -> None:
    """A query from one table of the pond to another; its last batch is repeated as after a crash."""
    for number in range(3):
        pond.insert("t", {"k": 1000 + number, "n": number, "s": f"new {number}"})
        pond.drain()
        df = stream(session, pond, view="t", startingEpoch=2).select("s")
        run(df.writeStream.format("millpond").option("table", "log"), tmp_path / "c", place(pond))
        pond.drain()
        done = sorted((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (done[-1], done[-1].with_name(f".{done[-1].name}.crc")):
            path.unlink(missing_ok=True)  # Spark did not get to record that the batch is done
    assert sorted(pond.read("log").column("s").to_pylist()) == ["new 0", "new 1", "new 2"]


@pytest.mark.slow
def test_a_query_whose_epochs_were_collected(session: Any, tmp_path: Path) -> None:
    path = tmp_path / "pond"
    with millpond.open(path, engine="inline", retain_epochs=1, collect_every=1) as pond:
        pond.table("t", {"k": int}, key="k")
        pond.insert("t", {"k": 1})
        pond.drain()
        changes = session.readStream.format("millpond").options(view="t", mode="changelog").load(str(path))
        run(changes.writeStream.format("noop"), tmp_path / "c")
        for k in range(5):
            pond.insert("t", {"k": k})
            pond.drain()
        with pytest.raises(StreamingQueryException, match="is no longer kept"):
            run(changes.writeStream.format("noop"), tmp_path / "c")
