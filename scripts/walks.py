"""Counts the source files that four walks through Millpond touch: python scripts/walks.py [walk to list]

Each walk runs on the inline engine under a profiler that notes which files of Millpond execute code.
What prepares a walk (opening the pond, defining tables) does not count.
ARCHITECTURE.md tells the walks and gives the numbers.
"""

from __future__ import annotations

import datetime
import logging
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import millpond
from millpond import ValueState
from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource

HOME = str(Path(millpond.__file__).parent) + "/"
ROWS = pa.table({"city": ["Oslo", "Bern", "Oslo"], "price": [30, 20, 12]})


def touched(act: Callable[[], Any]) -> set[str]:
    """The files of Millpond in which `act` executes code, in any thread it starts."""
    found: set[str] = set()

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            found.add(frame.f_code.co_filename.removeprefix(HOME))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return found


def folder_to_reader(folder: Path) -> set[str]:
    """A row from a folder to a reader."""
    (folder / "orders").mkdir()
    pond = millpond.open(folder / "pond", engine="inline")
    orders = pond.stream("orders", FileSource(str(folder / "orders"), schema=ROWS.schema))
    orders.key_by("city").aggregate(revenue="sum(price)").view("by_city")
    pond.drain()
    pq.write_table(ROWS, folder / "orders" / "1.parquet")

    def act() -> None:
        pond.drain()
        assert pond.lookup("by_city", "Oslo").num_rows == 1

    found = touched(act)
    pond.close()
    return found


def create_materialized_view(folder: Path) -> set[str]:
    """CREATE MATERIALIZED VIEW over a table that has rows."""
    pond = millpond.open(folder / "pond", engine="inline")
    pond.sql("CREATE TABLE orders (id int PRIMARY KEY, city text, price int)")
    pond.sql("INSERT INTO orders VALUES (1, 'Oslo', 30), (2, 'Bern', 20)")
    pond.sql("FLUSH")
    text = "CREATE MATERIALIZED VIEW by_city AS SELECT city, sum(price) AS revenue FROM orders GROUP BY city"
    found = touched(lambda: pond.sql(text))
    assert pond.sql("SELECT * FROM by_city").fetchall()
    pond.close()
    return found


def process_with_timer(folder: Path) -> set[str]:
    """A process call with a timer: a row sets it, and a later watermark fires it."""

    class Silence(millpond.Process):
        last = ValueState(int, default=0)

        def on_row(self, row: Any, ctx: Any) -> None:
            self.last.value = row.n
            ctx.set_timer("silent", after=10)

        def on_timer(self, timer: Any, ctx: Any) -> dict[str, Any]:
            return {"k": ctx.key.k, "last": self.last.value}

    def at(second: int) -> datetime.datetime:
        return datetime.datetime(2026, 1, 1, 0, 0, second)

    source = MemorySource({"k": str, "n": int, "at": datetime.datetime})
    pond = millpond.open(folder / "pond", engine="inline")
    stream = pond.stream("events", source, event_time="at", delay="5s")
    stream.key_by("k").process(Silence, {"k": str, "last": int}, id="silence").view("silent")
    pond.drain()

    def act() -> None:
        source.push([{"k": "a", "n": 1, "at": at(0)}])
        pond.drain()
        source.push([{"k": "b", "n": 2, "at": at(40)}])
        pond.drain()

    found = touched(act)
    assert pond.read("silent").to_pylist() == [{"k": "a", "last": 1}]
    pond.close()
    return found


def rescale(folder: Path) -> set[str]:
    """A rescale from one task to three, and the epoch after it."""
    source = MemorySource({"city": str, "price": int})
    pond = millpond.open(folder / "pond", engine="inline", parallelism=1)
    pond.stream("orders", source).key_by("city").aggregate(revenue="sum(price)").view("by_city")
    source.push(ROWS.to_pylist())
    pond.drain()

    def act() -> None:
        pond.rescale(3)
        source.push(ROWS.to_pylist())
        pond.drain()

    found = touched(act)
    pond.close()
    return found


WALKS = (folder_to_reader, create_materialized_view, process_with_timer, rescale)


def main(names: list[str]) -> None:
    logging.disable(logging.WARNING)
    for walk in WALKS:
        with tempfile.TemporaryDirectory() as folder:
            found = walk(Path(folder))
        print(f"{len(found):4}  {(walk.__doc__ or '').splitlines()[0]}")
        if walk.__name__ in names:
            print("".join(f"        {name}\n" for name in sorted(found)), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
