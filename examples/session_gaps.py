"""Sessions with a gap of their own for each user: some read slowly, some click fast.

The gap is an expression of the row, here a column: an interval, or a number of seconds.  A visit
ends when the gap after its last click has passed.

    python examples/session_gaps.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import tempfile
from datetime import datetime, timedelta
from typing import Any

import millpond
from millpond.sources.memory import MemorySource
from millpond.windows import sessions

NINE = datetime(2026, 3, 1, 9)
PATIENCE_S = {"ann": 600, "bob": 60}  # seconds without a click after which a visit is over
source = MemorySource({"user_id": str, "patience_s": int, "at": datetime})


def clicks(user: str, *minutes: float) -> list[dict[str, Any]]:
    times = [NINE + timedelta(minutes=m) for m in minutes]
    return [{"user_id": user, "patience_s": PATIENCE_S[user], "at": at} for at in times]


with millpond.open(tempfile.mkdtemp(), engine="inline") as pond:
    visits = (
        pond.stream("clicks", source, event_time="at", delay="15m")
        .key_by("user_id")
        .window(sessions("patience_s"))
    )
    visits.aggregate(clicks="count(*)", last="max(at)").view("visits")
    visits.late().view("too_late")
    for title, batch in {
        "the same clicks of two users": clicks("ann", 0, 3, 9) + clicks("bob", 0, 3, 9),
        "two clicks lengthen one of bob's visits": clicks("bob", 3.5, 4.25),
        "the second click bridges the gap before the first": clicks("ann", 25, 17),
        "the watermark is at 9:46": clicks("ann", 60) + clicks("bob", 61),
        "a click that comes too late": clicks("bob", 5),
    }.items():
        source.push(batch)
        pond.drain()
        print(f"{title}:")
        order = [("user_id", "ascending"), ("window_start", "ascending")]
        for v in pond.read("visits").sort_by(order).to_pylist():
            times = f"{v['window_start']:%H:%M:%S} to {v['last']:%H:%M:%S}"
            print(f"    {v['user_id']} {times}, clicks: {v['clicks']}, open until {v['window_end']:%H:%M:%S}")
    for row in pond.read("too_late").to_pylist():
        print(f"too late: {row['user_id']} at {row['at']:%H:%M}")
