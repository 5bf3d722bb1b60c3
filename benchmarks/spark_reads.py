"""Reading a view through Spark, against Spark reading the same rows from Parquet.

Law: both sides answer the same query over the same rows in one session, in turns, and their answers are equal
before anything is timed.  What counts is the ratio within one run.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import millpond
from benchmarks import report
from millpond.engine.spark.session import make_session

ROUNDS = 7
QUERIES = {
    "all columns, aggregated": ["count(*)", "sum(id)", "max(name)", "max(price)", "sum(quantity)", "max(at)"],
    "group by name": [],
    "group by name, with option columns": [],
    "group by name, as option query": [],
    "count": ["count(*)"],
    "count, as option query": [],
}
ASKED = {  # what the pond's SQL answers, beside Spark's own answer over Parquet
    "group by name, as option query": "SELECT name, sum(quantity)::BIGINT AS total FROM sales GROUP BY name",
    "count, as option query": "SELECT count(*) AS n FROM sales",
}


@dataclass(frozen=True)
class SparkRead:
    query: str
    millpond_ms: float  # the median of all rounds
    parquet_ms: float
    ratio: float  # the median of the ratios of the rounds


def run(rows: int, cores: int, console: Console) -> None:
    with tempfile.TemporaryDirectory(prefix="spark-reads-") as place:
        folder = Path(place)
        fill(folder, rows)
        spark = make_session(f"local[{cores}]", extra={"spark.local.dir": str(folder / "spark")})
        try:
            found = [measure(spark, folder, query) for query in QUERIES]
        finally:
            spark.stop()
    shown = Table("query", "millpond ms", "parquet ms", "ratio", title=f"{rows:,} rows of 5 columns in Spark")
    for one in found:
        shown.add_row(one.query, f"{one.millpond_ms:.0f}", f"{one.parquet_ms:.0f}", f"{one.ratio:.2f}")
    console.print(shown)
    path = report.keep("spark-reads", {"rows": rows, "cores": cores, "reads": [asdict(one) for one in found]})
    console.print(f"written: benchmarks/results/{path.name}")


def fill(folder: Path, rows: int) -> None:
    """A table of the pond, and the same rows in Parquet."""
    found = duckdb.sql(
        f"SELECT range AS id, 'name ' || range % 1000 AS name, (range * 7919 % 100003) / 8 AS price, "
        f"range % 100 AS quantity, TIMESTAMP '2026-01-01' + INTERVAL (range % 86400) SECOND AS at "
        f"FROM range({rows})"
    )
    assert found is not None
    made = found.to_arrow_table()
    with millpond.open(folder / "pond", engine="inline") as pond:
        pond.table("sales", made.schema, key="id")
        pond.insert("sales", made)
        pond.drain()
        pq.write_table(pond.read("sales"), folder / "sales.parquet", row_group_size=1 << 20)


def measure(spark: Any, folder: Path, query: str) -> SparkRead:
    files = spark.read.parquet(str(folder / "sales.parquet"))
    sides = [_ours(spark, str(folder / "pond"), query), _asked(files, query)]
    answers = [side() for side in sides]  # also warms up
    assert answers[0] == answers[1], f"{query}: the answers differ"
    times: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        order = (0, 1) if number % 2 else (1, 0)
        took = {side: _ms(sides[side]) for side in order}
        times.append((took[0], took[1]))
    ours, theirs = ([pair[side] for pair in times] for side in (0, 1))
    ratio = statistics.median(a / b for a, b in times)
    return SparkRead(query, statistics.median(ours), statistics.median(theirs), ratio)


def _ours(spark: Any, pond: str, query: str) -> Callable[[], list[Any]]:
    reader = spark.read.format("millpond")
    if query in ASKED:
        answer = reader.option("query", ASKED[query]).load(pond)
        return lambda: sorted(answer.collect())
    reader = reader.option("view", "sales")
    if query.endswith("option columns"):  # Spark prunes the columns of Parquet by itself
        reader = reader.option("columns", "name,quantity")
    return _asked(reader.load(pond), query)


def _asked(df: Any, query: str) -> Callable[[], list[Any]]:
    columns = ["count(*)"] if query.startswith("count") else QUERIES[query]
    if not columns:
        return lambda: sorted(df.groupBy("name").sum("quantity").collect())
    return lambda: df.selectExpr(*columns).collect()


def _ms(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000
