"""Hourly totals that are shown early, closed on time and corrected by late rows.

Files that only grow, a table in which a pane replaces the one before, and the view agree at the end.

    python examples/panes.py    (inline, without a JVM; for Spark leave out engine="inline")
"""

import sqlite3
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import millpond
from millpond.sinks.callback import CallbackSink
from millpond.sinks.parquet import ParquetSink
from millpond.sources.memory import MemorySource
from millpond.triggers import after_count, after_watermark
from millpond.windows import tumbling

NINE = datetime(2026, 3, 1, 9)
source = MemorySource({"shop": str, "price": int, "at": datetime})
folder = Path(tempfile.mkdtemp())


def sales(shop: str, *minutes: int) -> list[dict[str, Any]]:
    return [{"shop": shop, "price": 10 + m, "at": NINE + timedelta(minutes=m)} for m in minutes]


def upsert(id: str, panes: Any) -> None:
    """Write panes to a table by their key, so a delivery that is repeated changes nothing."""
    rows = panes.sort_by("pane").select(["shop", "window_start", "sales", "total"]).to_pylist()
    texts = [[str(value) for value in row.values()] for row in rows]
    with sqlite3.connect(folder / "totals.db") as database:
        database.execute("CREATE TABLE IF NOT EXISTS totals (shop, hour, n, total, PRIMARY KEY (shop, hour))")
        database.executemany("REPLACE INTO totals VALUES (?, ?, ?, ?)", texts)


with millpond.open(folder / "pond", engine="inline") as pond:
    shops = pond.stream("sales", source, event_time="at", delay="10m").key_by("shop")
    hourly = shops.window(
        tumbling("1h"),
        trigger=after_watermark(early=after_count(3), late=after_count(1)),
        allowed_lateness="2h",
        mode="accumulating",  # a pane has all rows so far, and retracts nothing
        panes=True,
    )
    totals = hourly.aggregate(sales="count(*)", total="sum(price)").view("totals")
    totals.sink("panes", ParquetSink(folder / "panes", mode="append"))
    totals.sink("upserts", CallbackSink(upsert))
    hourly.late().view("too_late")
    for batch in (
        sales("tea", 1, 5) + sales("books", 3),
        sales("tea", 20, 8),  # the third and fourth row: an early pane
        sales("books", 75),  # the watermark is at 10:05: the first hour is complete
        sales("books", 50),  # behind the watermark, and within the allowed lateness
        sales("tea", 240),  # 13:00: now it is too late for the first hour
        sales("tea", 30),
    ):
        source.push(batch)
        pond.drain()
    view, late = pond.read("totals"), pond.read("too_late").to_pylist()

order = [(name, "ascending") for name in ("shop", "window_start", "pane")]
panes = pq.read_table(folder / "panes").sort_by(order)
newest = {}  # a later pane of a window replaces the one before
for row in panes.to_pylist():
    print("{shop} {window_start:%H:%M} {pane_timing}: {sales} sales, {total}".format(**row))
    newest[row["shop"], row["window_start"]] = row
assert list(newest.values()) == view.sort_by(order).to_pylist()
print(f"{panes.num_rows} panes; the newest of each window are the {view.num_rows} rows of the view")
with sqlite3.connect(folder / "totals.db") as database:
    upserted = set(database.execute("SELECT * FROM totals"))
assert upserted == {(s, str(hour), str(r["sales"]), str(r["total"])) for (s, hour), r in newest.items()}
print(f"the upserted table has the same {len(upserted)} rows")
for row in late:
    print("too late: {shop} {at:%H:%M}, for the window from {window_start:%H:%M}".format(**row))
