"""Many views over one source: how the epoch floor grows with their number.

Law: one Spark session, the same bids, 1,000 rows an epoch, every view behind one exchange; the ratio is to
one view the same way in the same run.  Two ways: as people get it, where an epoch of so few rows is that of
one task, or of a task for each part of the plan, and as an epoch of many rows runs, in two tasks for each
level with Spark's shuffle between.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

import millpond
from benchmarks import report
from benchmarks.measure import tree
from millpond.engine.spark.engine import SparkEngine
from millpond.engine.spark.session import make_session

ROWS = 1000  # of an epoch
WARM = 25  # epochs that are not counted
ROOT = Path(__file__).parents[1]
WAYS = {
    "few rows (default)": SparkEngine.single_task_rows_max,
    "stages of two tasks": 0,
}  # rows that are one task's
KINDS = (
    "SELECT auction, count(*) AS n, sum(price) AS total FROM bid WHERE price > {0} GROUP BY auction",
    "SELECT bidder, count(*) AS n, max(price) AS best FROM bid WHERE auction % 97 <> {0} GROUP BY bidder",
    "SELECT channel, count(*) AS n, avg(price) AS mean FROM bid WHERE price < 1000000 + {0} GROUP BY channel",
    "SELECT auction, bidder, price FROM bid WHERE auction % 123 = {0} % 123",
    "SELECT date_trunc('minute', date_time) AS minute, count(*) AS n, sum(price + {0}) AS total FROM bid "
    "GROUP BY 1",
    "SELECT bidder, auction, count(*) AS n FROM bid WHERE price > {0} * 10 GROUP BY bidder, auction",
    "SELECT auction % (10 + {0}) AS part, count(*) AS n, min(price) AS low FROM bid GROUP BY 1",
    "SELECT channel, url, count(*) AS n FROM bid WHERE bidder % 11 <> {0} % 11 GROUP BY channel, url",
    "SELECT auction, max(price) AS high, min(date_time) AS first FROM bid WHERE channel <> 'c{0}' "
    "GROUP BY auction",
    "SELECT DISTINCT bidder, channel FROM bid WHERE price > {0} * 100",
)


@dataclass(frozen=True)
class Figure:
    way: str
    views: int
    epochs: int
    p50_ms: float
    p90_ms: float
    cpu_ms: float  # of all processes, an epoch
    tables: int
    runs: int  # that live at the end


def texts(count: int) -> list[str]:
    return [KINDS[n % len(KINDS)].format(n) for n in range(count)]


def run(counts: Sequence[int], epochs: int, console: Console) -> None:
    session = make_session(extra={"spark.executorEnv.PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"})
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="views-") as place:
        measured(session, Path(place, "warm"), "stages of two tasks", 1, 5)  # the session's own first epochs
        for way in WAYS:
            figures += [measured(session, Path(place, f"{WAYS[way]}-{n}"), way, n, epochs) for n in counts]
    table = Table("way", "views", "epoch p50 ms", "p90 ms", "", "CPU ms an epoch", "", "tables", "runs")
    for one in figures:
        first = next(f for f in figures if f.way == one.way)
        table.add_row(
            one.way,
            str(one.views),
            f"{one.p50_ms:.0f}",
            f"{one.p90_ms:.0f}",
            f"{one.p50_ms / first.p50_ms:.2f}x",
            f"{one.cpu_ms:.0f}",
            f"{one.cpu_ms / first.cpu_ms:.2f}x",
            str(one.tables),
            str(one.runs),
        )
    console.print(table)
    path = report.keep("views", {"rows": ROWS, "views": [asdict(f) for f in figures]})
    console.print(f"written: benchmarks/results/{path.name}")


def measured(session: Any, folder: Path, way: str, views: int, epochs: int) -> Figure:
    """Epochs one after the other; time is from commit to commit."""
    total = WARM + epochs
    settings: dict[str, Any] = {"spark": session, "epoch_rows_max": ROWS, "parallelism": 2}
    at: list[float] = []
    cpu: list[float] = []
    with (
        patch.object(SparkEngine, "single_task_rows_max", WAYS[way]),
        millpond.open(folder, **settings) as pond,
    ):
        source = f"connector = 'nexmark', type = 'bid', events = {total * ROWS * 50 // 46}"
        made = ";".join(f"CREATE MATERIALIZED VIEW v{n} AS {text}" for n, text in enumerate(texts(views)))
        pond.sql(f"CREATE SOURCE bid WITH ({source}); {made}")

        def committed(_: Any) -> None:
            at.append(time.perf_counter())
            if len(at) == WARM or len(at) == total - 2:
                cpu.append(sum(tree(os.getpid()).values()))

        pond.on_epoch(committed)
        pond.drain()
        runs = len(pond._reader.pinned().__enter__().listing.all())
        tables = len({t.name for node in pond.plan.nodes.values() for t in node.binding.tables})
    times = [1000 * (b - a) for a, b in zip(at[WARM:], at[WARM + 1 : total - 2], strict=False)]
    used = 1000 * (cpu[1] - cpu[0]) / (total - 2 - WARM)
    return Figure(
        way,
        views,
        len(times),
        statistics.median(times),
        statistics.quantiles(times, n=10)[-1],
        used,
        tables,
        runs,
    )
