"""Sessions: a visit ends when nothing was clicked for ten minutes.

Clicks come out of order; each visit is told once, by an event-time timer, when no click can join it
any more.  Clicks that come even later are kept apart.

    python examples/sessions.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import millpond
from millpond import MapState, Process, ProcessContext, Timer
from millpond.sources.memory import MemorySource

GAP = timedelta(minutes=10)
NINE = datetime(2026, 3, 1, 9)


@dataclass
class Visit:
    user: str
    start: datetime
    last: datetime
    clicks: int


class Sessions(Process):
    open = MapState(datetime, Visit)  # by when it began: late clicks can begin, lengthen and join visits

    def on_row(self, row: Any, ctx: ProcessContext) -> None:
        mine = Visit(row.user_id, row.at, row.at, 1)
        for start, other in list(self.open.items()):
            if other.start - GAP < row.at < other.last + GAP:
                first, last = min(mine.start, other.start), max(mine.last, other.last)
                mine = Visit(row.user_id, first, last, mine.clicks + other.clicks)
                self.open.remove(start)
                ctx.delete_timer(start.isoformat())
        self.open[mine.start] = mine
        ctx.set_timer(mine.start.isoformat(), mine.last + GAP)

    def on_timer(self, timer: Timer, ctx: ProcessContext) -> Iterator[Visit]:
        start = datetime.fromisoformat(timer.name)
        yield self.open[start]
        self.open.remove(start)


def clicks(user: str, *minutes: float) -> list[dict[str, Any]]:
    return [{"user_id": user, "at": NINE + timedelta(minutes=m)} for m in minutes]


source = MemorySource({"user_id": str, "at": datetime})
rows = clicks("ann", 0, 4, 8, 30, 33) + clicks("bob", 1, 18, 9.5) + clicks("cyd", 20, 25, 29, 38)
rows.sort(key=lambda row: row["at"])
random.seed(1)
rows.sort(key=lambda row: row["at"] + timedelta(minutes=random.uniform(0, 9)))  # some overtake others

with millpond.open(tempfile.mkdtemp(), engine="inline") as pond:
    stream = pond.stream("clicks", source, event_time="at", delay="10m")
    stream.key_by("user_id").process(Sessions, id="sessions").view("visits")
    stream.late().view("too_late")
    for batch in (rows[:6], rows[6:], clicks("dan", 60) + clicks("ann", 41), clicks("bob", 2, 51, 75)):
        source.push(batch)
        pond.drain()
    for v in pond.read("visits").sort_by([("user", "ascending"), ("start", "ascending")]).to_pylist():
        print(f"{v['user']}: {v['start']:%H:%M} to {v['last']:%H:%M}, {v['clicks']} clicks")
    for row in pond.read("too_late").to_pylist():
        print(f"too late: {row['user_id']} at {row['at']:%H:%M}")
