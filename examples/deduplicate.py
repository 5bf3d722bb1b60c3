"""Deduplication: each message once, although senders repeat them; and nothing is remembered for ever.

    python examples/deduplicate.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import random
import tempfile
from datetime import datetime, timedelta
from typing import Any

import millpond
from millpond import ValueState
from millpond.sources.memory import MemorySource

START = datetime(2026, 3, 1)
schema = {"message": str, "at": datetime, "amount": int}


def once(row: Any, seen: ValueState[bool] = ValueState(bool, ttl="10m")) -> Any:
    """Ten minutes after a message came, by event time, its id is forgotten."""
    if seen.value:
        return None
    seen.value = True
    return row


random.seed(5)
rows: list[dict[str, Any]] = []
for n in range(6000):  # one message a second; one in four is sent again, up to nine minutes later
    at = START + timedelta(seconds=n)
    rows.append({"message": f"m{n:05}", "at": at, "amount": n % 100})
    if random.random() < 0.25:
        rows.append(rows[-1] | {"at": at + timedelta(seconds=random.uniform(1, 540))})
rows.append(rows[0] | {"at": START + timedelta(minutes=50)})  # much too late a repetition: it counts again
rows.sort(key=lambda row: row["at"])
source = MemorySource(schema)

with millpond.open(tempfile.mkdtemp(), engine="inline", parallelism=2) as pond:
    messages = pond.stream("messages", source, event_time="at", delay="1m")
    unique = messages.key_by("message").process(once, schema, id="once")
    unique.aggregate(messages="count(*)", amount="sum(amount)").view("unique")
    messages.aggregate(messages="count(*)", amount="sum(amount)").view("all")
    for part in range(0, len(rows), 1500):
        source.push(rows[part : part + 1500])
        pond.drain()
        (every,), (one,) = pond.read("all").to_pylist(), pond.read("unique").to_pylist()
        print(f"{every['messages']} rows, {one['messages']} messages")
    print(f"amount {one['amount']} once, {every['amount']} with repetitions")
