"""Sessions: a visit ends when nothing was clicked for ten minutes, and is shown while it lasts.

A click that comes late can lengthen a visit or join two; the view follows, and so does what is
computed from it.  `sessions.py` does the same by hand, with a state and a timer.

    python examples/session_windows.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import tempfile
from datetime import datetime, timedelta
from typing import Any

import millpond
from millpond.sources.memory import MemorySource
from millpond.triggers import after_count, after_watermark
from millpond.windows import sessions

NINE = datetime(2026, 3, 1, 9)
source = MemorySource({"user_id": str, "at": datetime})


def clicks(user: str, *minutes: int) -> list[dict[str, Any]]:
    return [{"user_id": user, "at": NINE + timedelta(minutes=m)} for m in minutes]


with millpond.open(tempfile.mkdtemp(), engine="inline") as pond:
    visits = (
        pond.stream("clicks", source, event_time="at", delay="15m")
        .key_by("user_id")
        .window(
            sessions("10m"),
            trigger=after_watermark(early=after_count(2), late=after_count(1)),
            allowed_lateness="30m",
            panes=True,
        )
    )
    counted = visits.aggregate(clicks="count(*)", last="max(at)")
    counted.view("visits")
    counted.key_by("user_id").aggregate(visits="count(*)", clicks="sum(clicks)").view("by_user")
    visits.late().view("too_late")
    order = [(name, "ascending") for name in ("user_id", "window_start")]
    for title, batch in {
        "two clicks, an early pane": clicks("ann", 0, 4),
        "another visit": clicks("ann", 18, 20),
        "two clicks between them make one of two": clicks("ann", 11, 13) + clicks("bob", 12),
        "the watermark is at 9:30: both are over": clicks("cyd", 45),
        "bob's late click lengthens his visit": clicks("bob", 15),
        "the watermark is at 10:15: nothing can join them": clicks("cyd", 90),
        "this click is too late": clicks("bob", 16),
    }.items():
        source.push(batch)
        pond.drain()
        print(f"{title}:")
        for v in pond.read("visits").sort_by(order).to_pylist():
            times = f"{v['window_start']:%H:%M} to {v['last']:%H:%M}"
            print(f"    {v['user_id']} {times}, clicks: {v['clicks']} ({v['pane_timing']})")
    for row in pond.read("by_user").sort_by("user_id").to_pylist():
        print(f"in all: {row['user_id']} {row['visits']} visits, {row['clicks']} clicks")
    for row in pond.read("too_late").to_pylist():
        print(f"too late: {row['user_id']} at {row['at']:%H:%M}")
