"""Windows by event time: each is shown once, when it is over; rows that come after that are kept apart.

    python examples/windows.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import datetime
import tempfile

import pyarrow as pa

import millpond
from millpond.sources.memory import MemorySource

NOON = datetime.datetime(2026, 3, 1, 12)
clicks = MemorySource(pa.schema([("page", pa.string()), ("at", pa.timestamp("us"))]))


def click(page: str, second: int) -> dict[str, object]:
    return {"page": page, "at": NOON + datetime.timedelta(seconds=second)}


def show(title: str, rows: list[dict[str, object]]) -> None:
    print(title)
    for row in rows:
        print("   ", ", ".join(f"{name} {value}" for name, value in row.items()))


with millpond.open(tempfile.mkdtemp(), engine="inline") as pond:
    # A row more than 4 seconds behind the newest is late.
    stream = pond.stream("clicks", clicks, event_time="at", delay="4s")
    stream.tumble("10s").key_by("window_start", "window_end", "page").aggregate(
        on_close=True, clicks="count(*)"
    ).view("closed")
    stream.tumble("10s").key_by("window_start", "page").aggregate(clicks="count(*)").view("so_far")

    clicks.push([click("home", 1), click("home", 8), click("about", 9), click("home", 12)])
    pond.drain()
    show("Nothing is over yet; the other view is up to date all the time:", pond.read("so_far").to_pylist())
    assert pond.read("closed").num_rows == 0

    clicks.push([click("about", 11), click("home", 9), click("home", 15)])  # out of order, but not late
    pond.drain()
    show("12:00:15 has come, so the first ten seconds are over:", pond.read("closed").to_pylist())

    clicks.push([click("home", 3), click("home", 16)])  # the first of them comes too late
    pond.drain()
    show("A closed window does not change:", pond.read("closed").to_pylist())
    show("The late row is not lost:", pond.late("clicks.watermark").to_pylist())
    print("counted:", {name: n for name, n in pond.head().counts.items() if "late" in name})
