"""Fraud: a tiny charge, then a large one on the same card within a minute.

A thief tries the card first.  A timer forgets the tiny charge after a minute of event time.

    python examples/fraud.py

It runs on Spark and needs Java 17.  With engine="inline" it runs in this process and gives the same.
"""

import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import millpond
from millpond import Process, ProcessContext, Timer, ValueState
from millpond.sources.memory import MemorySource

TINY, LARGE, WITHIN = 1.00, 500.00, timedelta(minutes=1)
START = datetime(2026, 3, 1, 12)


@dataclass
class Charge:
    at: datetime
    amount: float


@dataclass
class Alert:
    card: str
    tried_with: float
    taken: float
    seconds: int


class Fraud(Process):
    tiny = ValueState(Charge)  # one column per field in the pond

    def on_row(self, row: Any, ctx: ProcessContext) -> Iterator[Alert]:
        tiny = self.tiny.value
        if tiny and row.amount > LARGE and row.at - tiny.at < WITHIN:  # rows may run ahead of timers
            yield Alert(row.card, tiny.amount, row.amount, (row.at - tiny.at).seconds)
        if row.amount < TINY:
            self.tiny.value = Charge(row.at, row.amount)
            ctx.set_timer("forget", row.at + WITHIN)  # one timer of this name per card: it is moved

    def on_timer(self, timer: Timer, ctx: ProcessContext) -> None:
        self.tiny.clear()


def charge(card: str, second: float, amount: float) -> dict[str, Any]:
    return {"card": card, "at": START + timedelta(seconds=second), "amount": amount}


random.seed(7)
charges = [charge(f"card {random.randrange(300):03}", n / 5, random.randrange(2, 400)) for n in range(3000)]
charges += [charge("card 007", 100, 0.50), charge("card 007", 121, 899.00)]
charges += [charge("card 013", 200, 0.75), charge("card 013", 280, 650.00)]  # too long after the tiny one
charges += [charge("card 042", 290, 0.99), charge("card 042", 330, 0.01), charge("card 042", 385, 1200.00)]
charges.sort(key=lambda row: row["at"])
source = MemorySource({"card": str, "at": datetime, "amount": float})

with millpond.open(tempfile.mkdtemp(), parallelism=2) as pond:
    stream = pond.stream("charges", source, event_time="at", delay="5s")
    stream.key_by("card").process(Fraud, id="fraud").view("alerts")
    for part in range(0, len(charges), 1000):
        source.push(charges[part : part + 1000])
        epoch = pond.drain()
        print(f"epoch {epoch}: {len(charges[: part + 1000])} charges, {pond.read('alerts').num_rows} alerts")
    for row in pond.read("alerts").sort_by("card").to_pylist():
        print("{card}: tried with {tried_with:.2f}, {taken:.2f} taken {seconds} s later".format(**row))
