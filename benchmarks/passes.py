"""Each pass of the physical plan alone: what an epoch costs with it and without it.

Law: in one pond, one process and one run, epochs with all passes and epochs without one pass alternate (on,
off, off, on), so both have the same state and the same noise.  The cost of an epoch is the CPU time of this
process from commit to commit; a ratio is the median over blocks of four epochs.  The inline engine runs the
tasks of an epoch one after the other, so a choice that only uses more processors at a time is not measured
(`plan_parts`), and neither are the fixed costs of a stage of Spark, which `single_task` saves.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import millpond
from benchmarks import report
from benchmarks.views import texts
from millpond import ValueState
from millpond.engine.task.optimizer import NAMES, VARIABLE
from millpond.sources.files import FileSource

WARM = 8  # epochs that are not counted
IS_ON = (True, False, False, True)  # the epochs of a block
FILE_ROWS = 250_000
MILLION = 4 * FILE_ROWS

Define = Callable[[millpond.Pond, Path, int], None]  # defines the program for an input of so many rows


@dataclass(frozen=True)
class Workload:
    """A program for which a pass should pay."""

    about: str
    rows: int  # of an epoch
    tasks: int
    define: Define


@dataclass(frozen=True)
class Figure:
    name: str
    workload: str
    blocks: int  # of four epochs
    on_ms: float  # median CPU of an epoch with all passes
    off_ms: float  # without this one
    ratio: float  # of off to on: median over the blocks
    low: float  # quartiles of that ratio
    high: float


def _many_views(count: int) -> Define:
    def define(pond: millpond.Pond, folder: Path, rows: int) -> None:
        source = f"connector = 'nexmark', type = 'bid', events = {rows * 50 // 46 + 50}"
        views = ";".join(f"CREATE MATERIALIZED VIEW v{n} AS {text}" for n, text in enumerate(texts(count)))
        pond.sql(f"CREATE SOURCE bid WITH ({source}); {views}")

    return define


def _write_files(folder: Path, rows: int) -> None:
    """Bids in Parquet; all files have the same rows."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    channels = np.array([f"channel-{n:04d}-of-a-marketplace" for n in range(2000)])
    bids = pa.table(
        {
            "auction": rng.integers(0, 20_000, FILE_ROWS),
            "bidder": rng.integers(0, 100_000, FILE_ROWS),
            "price": rng.integers(1, 1_000_000, FILE_ROWS),
            "channel": pa.array(channels[rng.integers(0, len(channels), FILE_ROWS)]),
            "at": pa.array(np.arange(FILE_ROWS) * 400, pa.timestamp("us")),
            "extra": pa.array([f"{n:x} {'-' * 60}" for n in rng.integers(0, 1 << 40, FILE_ROWS)]),
        }
    )
    first = folder / "00000.parquet"
    pq.write_table(bids, first, row_group_size=FILE_ROWS // 2)
    for number in range(1, -(-rows // FILE_ROWS)):
        os.link(first, folder / f"{number:05d}.parquet")


def _over_files(views: str) -> Define:
    def define(pond: millpond.Pond, folder: Path, rows: int) -> None:
        _write_files(folder, rows)
        pond.sql(f"CREATE SOURCE bid WITH (connector = 'files', path = '{folder}', format = 'parquet')")
        pond.sql(views)

    return define


def _lookup(pond: millpond.Pond, folder: Path, rows: int) -> None:
    values = ", ".join(f"({n}, 'value {n}')" for n in range(10_000))
    pond.sql(
        f"CREATE TABLE side (key bigint PRIMARY KEY, value text); INSERT INTO side VALUES {values}; FLUSH"
    )
    _over_files(LOOKUP)(pond, folder, rows)


def running_total(row: Any, total: Any = ValueState(int, default=0)) -> tuple[int, int]:
    total.value += row.price
    return row.auction, total.value


def _user_code(pond: millpond.Pond, folder: Path, rows: int) -> None:
    _write_files(folder, rows)
    stream = pond.stream("bid", FileSource(str(folder))).key_by("auction")
    totals = stream.process(running_total, {"auction": int, "total": int}, id="totals")
    totals.filter("total < 0").view("v")


TOP = """
    CREATE MATERIALIZED VIEW v AS SELECT bidder, auction, price, channel FROM (
        SELECT *, row_number() OVER (PARTITION BY bidder ORDER BY price DESC, auction) AS n
        FROM bid WHERE price > 10
    ) WHERE n <= 1
"""
LOOKUP = """
    CREATE MATERIALIZED VIEW v AS SELECT b.auction, b.price, s.value FROM bid AS b
    JOIN side FOR SYSTEM_TIME AS OF PROCTIME() AS s ON b.auction % 10000 = s.key
    WHERE length(s.value) + b.price = 20
"""
WIDE = """
    CREATE MATERIALIZED VIEW v AS
    SELECT auction, bidder, price * 2 AS price, channel, extra FROM bid WHERE price % 1000000 = 1
"""
WINDOWS = """
    CREATE MATERIALIZED VIEW v AS
    SELECT auction % 100 AS part, window_start, window_end, count(*) AS n
    FROM HOP(bid, at, INTERVAL '2 seconds', INTERVAL '10 seconds') GROUP BY 1, 2, 3
"""
ONE_VIEW = Workload("1 view, 1,000 rows an epoch, one task", 1000, 1, _many_views(1))
MANY_VIEWS = Workload("50 views, 1,000 rows an epoch, one task", 1000, 1, _many_views(50))
SCAN = Workload("filter of wide rows, 1 M rows, one task", MILLION, 1, _over_files(WIDE))
HOPS = Workload(
    "counts by 100 keys and hop window, 4 M rows, two tasks", 4 * MILLION, 2, _over_files(WINDOWS)
)
TEXTS = Workload("top 1 by key with a repeated text, 1 M rows, two tasks", MILLION, 2, _over_files(TOP))
LOOKUPS = Workload("lookup in 10,000 rows, 1 M rows, two tasks", MILLION, 2, _lookup)
USER_CODE = Workload("user code that reads 2 of 5 columns, 250,000 rows, one task", FILE_ROWS, 1, _user_code)

MEASURED = {
    "shared_filters": MANY_VIEWS,
    "shared_projections": MANY_VIEWS,
    "hash_order": MANY_VIEWS,
    "batched_aggregates": MANY_VIEWS,
    "row_positions": MANY_VIEWS,
    "fused_scans": SCAN,
    "batch_reduction": HOPS,
    "dictionary_columns": TEXTS,
    "single_task": ONE_VIEW,
    "local_lookup": LOOKUPS,
    "fewer_columns": USER_CODE,
}
NOT_MEASURED = {"plan_parts": "it uses more processors at a time, not fewer seconds; see decision 18"}
assert {*MEASURED, *NOT_MEASURED} == {*NAMES}


def choose(text: str) -> list[str]:
    """The passes that a list names; ValueError if there is no such pass to measure."""
    names = list(MEASURED) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in MEASURED:
            raise ValueError(NOT_MEASURED.get(name, f"no pass named {name!r}: {', '.join(MEASURED)}"))
    return names


def run(names: Sequence[str], blocks: int, console: Console) -> None:
    table = Table("pass", "workload", "CPU ms an epoch, on", "off", "off / on", "quartiles")
    figures = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="passes-") as folder:
            one = measured(name, MEASURED[name], blocks, Path(folder))
        figures.append(one)
        spread = f"{one.low:.2f} to {one.high:.2f}"
        table.add_row(
            name, one.workload, f"{one.on_ms:.1f}", f"{one.off_ms:.1f}", f"{one.ratio:.2f}x", spread
        )
        console.print(f"{name}: {one.ratio:.2f}x ({spread})")
    console.print(table)
    path = report.keep("passes", {"passes": [asdict(one) for one in figures]})
    console.print(f"written: benchmarks/results/{path.name}")


def measured(name: str, workload: Workload, blocks: int, folder: Path) -> Figure:
    """Run the workload, with the pass on and off in turns."""
    count = WARM + len(IS_ON) * blocks
    cpu: list[float] = []
    settings: dict[str, Any] = {
        "engine": "inline",
        "durable": False,
        "compact": False,  # its thread would count as well
        "parallelism": workload.tasks,
        "epoch_rows_max": workload.rows,
        "target_ms": 600_000,  # all epochs are of one size
        "catch_up_ms": 600_000,
    }
    with _environment(), millpond.open(folder / "pond", **settings) as pond:
        workload.define(pond, folder / "input", (count + 1) * workload.rows)
        last = 0.0

        def committed(_: Any) -> None:
            nonlocal last
            now = time.process_time()
            cpu.append(now - last)
            last = now
            # The next epoch is planned after this call.
            os.environ[VARIABLE] = "" if IS_ON[len(cpu) % len(IS_ON)] else name

        pond.on_epoch(committed)
        pond.drain()
    return figure(name, workload.about, cpu[WARM : WARM + len(IS_ON) * blocks])


def figure(name: str, workload: str, cpu: Sequence[float]) -> Figure:
    """The figure of a pass, from the CPU seconds of its epochs."""
    size = len(IS_ON)
    on, off, ratios = [], [], []
    for start in range(0, len(cpu) - size + 1, size):
        block = list(zip(IS_ON, cpu[start : start + size], strict=True))
        with_it = [1000 * seconds for is_on, seconds in block if is_on]
        without = [1000 * seconds for is_on, seconds in block if not is_on]
        on += with_it
        off += without
        ratios.append(sum(without) / sum(with_it))
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return Figure(
        name,
        workload,
        len(ratios),
        statistics.median(on),
        statistics.median(off),
        statistics.median(ratios),
        low,
        high,
    )


@contextmanager
def _environment() -> Iterator[None]:
    """Leaves the switch as it was."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
