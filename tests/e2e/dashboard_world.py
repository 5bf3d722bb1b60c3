"""The ponds that the dashboard is tested with: a small shop, and a plan of a thousand steps."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from typing import Any

import millpond
from millpond import Pond, Process, ValueState
from millpond.sinks.callback import CallbackSink
from millpond.sources.memory import MemorySource

START = datetime.datetime(2024, 5, 1, 9)
CITIES = ("Aachen", "Bergen", "Cork", "Delft", "Évora", "Fiesole")
ORDERS = {"id": int, "city": str, "cents": int, "at": datetime.datetime}


class Loyalty(Process):
    """Counts the orders of a city."""

    seen = ValueState(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        self.seen.value += 1
        if self.seen.value % 10 == 0:
            yield {"city": row.city, "orders": self.seen.value}


def euros(row: Any) -> dict[str, Any]:
    return {"id": row.id, "euros": 100 // (row.cents % 97) + row.cents // 100}


class Shop:
    """A pond with sources, windows, a process step, a sink, error rows and late rows."""

    def __init__(self, path: str) -> None:
        self.random = random.Random(7)
        self.orders = MemorySource(ORDERS)
        self.delivered: list[Any] = []
        self.made = 0
        self.pond: Pond = millpond.open(path, engine="inline", parallelism=2)
        stream = self.pond.stream("orders", self.orders, event_time="at", delay="20s")
        stream.key_by("city").aggregate(n="count(*)", cents="sum(cents)").view("by_city")
        stream.map(euros, {"id": int, "euros": int}, id="euros").view("priced")
        stream.key_by("city").process(Loyalty(), {"city": str, "orders": int}, id="loyalty").view("loyal")
        customers = self.pond.table("customers", {"name": str, "city": str, "age": int}, key="name")
        told = customers.key_by("city").aggregate(people="count(*)", oldest="max(age)").view("people_by_city")
        told.sink("mail", CallbackSink(lambda id, rows: self.delivered.append(id)), mode="upsert")
        self.pond.insert(
            "customers", [{"name": f"c{n:03}", "city": CITIES[n % 6], "age": 20 + n % 50} for n in range(180)]
        )
        self.pond.drain()

    def push(self, count: int = 40, late: int = 0) -> None:
        rows = []
        for _ in range(count):
            self.made += 1
            seconds = self.made / 4 + self.random.random() * 10
            city = CITIES[min(5, int(self.random.expovariate(0.7)))]
            cents = self.random.randrange(100, 9_900)
            rows.append(
                {
                    "id": self.made,
                    "city": city,
                    "cents": cents,
                    "at": START + datetime.timedelta(seconds=seconds),
                }
            )
        rows += [
            {"id": -n, "city": "Cork", "cents": 500, "at": START - datetime.timedelta(hours=1)}
            for n in range(late)
        ]
        self.orders.push(rows)

    def live(self, epochs: int) -> None:
        """Commit some epochs with different loads."""
        for n in range(epochs):
            self.push(self.random.randrange(30, 400), late=3 if n == 12 else 0)
            self.pond.drain()
            if n == epochs // 2:
                self.pond.savepoint("before-sale")
                self.pond.sql(
                    "CREATE MATERIALIZED VIEW rich AS SELECT city, cents / 100 AS euros FROM by_city WHERE cents > 5000"
                )
            if n % 7 == 3:
                self.pond.insert("customers", {"name": f"c{n:03}", "city": "Cork", "age": 99})
                self.pond.drain()


def thousand_steps(path: str) -> Pond:
    """A pond whose plan has at least a thousand steps."""
    pond = millpond.open(path, engine="inline")
    table = pond.table("readings", {"sensor": int, "celsius": float}, key="sensor")
    for n in range(500):
        stream = table.filter(f"sensor % 500 = {n}", id=f"alarm_{n:03}.only")
        stream.key_by("sensor").aggregate(hottest="max(celsius)", id=f"alarm_{n:03}.peak").view(
            f"alarm_{n:03}"
        )
    pond.insert("readings", [{"sensor": n, "celsius": n / 10} for n in range(2000)])
    pond.drain()
    return pond
