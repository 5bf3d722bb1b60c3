"""Calendar months in two time zones: the same sale belongs to March in one and to April in the other.

Months have 28 to 31 days, and an hour less or more where the clocks change; each closes by the watermark.

    python examples/calendar_months.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import tempfile
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import millpond
from millpond.sources.memory import MemorySource
from millpond.windows import calendar

ZONES = {"berlin": "Europe/Berlin", "tokyo": "Asia/Tokyo"}
SALES = [  # in UTC
    (datetime(2026, 2, 28, 20), 1),  # in Tokyo it is March already
    (datetime(2026, 3, 10, 12), 10),
    (datetime(2026, 3, 31, 21, 59), 100),  # 23:59 in Berlin, which has summer time since the 29th
    (datetime(2026, 3, 31, 22), 1_000),  # midnight in Berlin
    (datetime(2026, 4, 30, 14, 59), 10_000),  # 23:59 in Tokyo
    (datetime(2026, 5, 2, 0), 100_000),
]

source = MemorySource({"at": datetime, "price": int})
with millpond.open(tempfile.mkdtemp(), engine="inline") as pond:
    stream = pond.stream("sales", source, event_time="at", delay="1d")
    for name, zone in ZONES.items():
        months = stream.key_by().window(calendar("month", zone), on_close=True)
        months.aggregate(total="sum(price)").view(f"months_of_{name}")
    for at, price in SALES:
        source.push([{"at": at, "price": price}])
        pond.drain()
    for name, zone in ZONES.items():
        print(f"{zone}:")
        for row in pond.read(f"months_of_{name}").sort_by("window_start").to_pylist():
            start, end = (row[c].replace(tzinfo=UTC) for c in ("window_start", "window_end"))
            hours = (end - start).total_seconds() / 3600
            local = start.astimezone(ZoneInfo(zone))
            print(
                f"  {local:%B %Y}: {row['total']:>6} (begins at {start:%d %b %H:%M} UTC, {hours:.0f} hours)"
            )
