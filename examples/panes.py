"""Hourly totals that are shown early, closed on time and corrected by late rows.

A file of panes that can only grow and the view, which replaces them, agree at the end.

    python examples/panes.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import millpond
from millpond.sinks.parquet import ParquetSink
from millpond.sources.memory import MemorySource
from millpond.triggers import after_count, after_watermark
from millpond.windows import tumbling

NINE = datetime(2026, 3, 1, 9)
source = MemorySource({"shop": str, "price": int, "at": datetime})
folder = Path(tempfile.mkdtemp())


def sales(shop: str, *minutes: int) -> list[dict[str, Any]]:
    return [{"shop": shop, "price": 10 + m, "at": NINE + timedelta(minutes=m)} for m in minutes]


with millpond.open(folder / "pond", engine="inline") as pond:
    hourly = (
        pond.stream("sales", source, event_time="at", delay="10m")
        .key_by("shop")
        .window(
            tumbling("1h"),
            trigger=after_watermark(early=after_count(3), late=after_count(1)),
            allowed_lateness="2h",
            mode="accumulating",  # a pane has all rows so far, and retracts nothing
            panes=True,
        )
    )
    totals = hourly.aggregate(sales="count(*)", total="sum(price)").view("totals")
    totals.sink("panes", ParquetSink(folder / "panes", mode="append"))
    hourly.late().view("too_late")
    for batch in (
        sales("tea", 1, 5) + sales("books", 3),
        sales("tea", 20, 8),  # the third and fourth row: an early pane
        sales("books", 75),  # the watermark is at 10:05: the first hour is complete
        sales("books", 50),  # behind the watermark, and within the allowed lateness
        sales("tea", 240),  # 13:00 and more: now it is too late for the first hour
        sales("tea", 30),
    ):
        source.push(batch)
        pond.drain()
    view = pond.read("totals")
    late = pond.read("too_late").to_pylist()


order = [(name, "ascending") for name in ("shop", "window_start", "pane")]
panes = pq.read_table(folder / "panes").sort_by(order)
newest = {}  # the reader of the files: a later pane of a window replaces the one before
for row in panes.to_pylist():
    hour, timing = f"{row['window_start']:%H:%M}", row["pane_timing"]
    print(f"{row['shop']} {hour} {timing}: {row['sales']} sales, {row['total']}")
    newest[row["shop"], row["window_start"]] = row
assert list(newest.values()) == view.sort_by(order).to_pylist()
print(f"{panes.num_rows} panes; the newest of each window are the {view.num_rows} rows of the view")
for row in late:
    print(f"too late: {row['shop']} {row['at']:%H:%M}, for the window from {row['window_start']:%H:%M}")
