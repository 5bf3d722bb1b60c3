"""Enrichment with a control stream: rules that are changed while it runs, and hold from then on.

A join corrects old results when its table changes (examples/join_table.py).  A control stream does not: each
payment keeps the rate that held when it came.  Every key hears the control rows of an epoch before its own.

    python examples/control_stream.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import tempfile
from dataclasses import dataclass
from typing import Any

import millpond
from millpond import BroadcastState, Process, ProcessContext, ReducingState
from millpond.sources.memory import MemorySource


@dataclass
class Booked:
    payment: int
    shop: str
    euro: float
    shop_total: float


class Convert(Process):
    rates = BroadcastState(str, float)  # one for all shops, written by on_control alone
    total = ReducingState(lambda a, b: a + b, float)  # one for each shop

    def on_control(self, row: Any, ctx: ProcessContext) -> None:
        self.rates[row.currency] = row.rate

    def on_control_removed(self, row: Any, ctx: ProcessContext) -> None:
        self.rates.remove(row.currency)  # an update of the table removes the old row first

    def on_row(self, row: Any, ctx: ProcessContext) -> Booked | None:
        if row.currency not in self.rates:
            ctx.emit("unknown", {"payment": row.payment, "currency": row.currency})
            return None
        euro = round(row.amount * self.rates[row.currency], 2)
        self.total.add(euro)
        return Booked(row.payment, row.shop, euro, round(self.total.value, 2))


source = MemorySource({"payment": int, "shop": str, "currency": str, "amount": float})

with millpond.open(tempfile.mkdtemp(), engine="inline", parallelism=3) as pond:
    rates = pond.table("rates", {"currency": str, "rate": float}, key="currency")
    booked = (
        pond.stream("payments", source)
        .key_by("shop")
        .process(Convert, control=rates, sides={"unknown": {"payment": int, "currency": str}}, id="convert")
    )
    booked.view("booked", key="payment")
    booked.side("unknown").view("unknown")

    def pay(*payments: tuple[int, str, str, float]) -> None:
        source.push([dict(zip(source.schema.names, p, strict=True)) for p in payments])
        pond.drain()

    pond.insert("rates", [{"currency": "EUR", "rate": 1.0}, {"currency": "USD", "rate": 0.90}])
    pay((1, "book shop", "USD", 10.0), (2, "tea shop", "EUR", 4.0), (3, "tea shop", "NOK", 100.0))
    pond.insert("rates", [{"currency": "USD", "rate": 0.80}, {"currency": "NOK", "rate": 0.09}])
    pay((4, "book shop", "USD", 10.0), (5, "tea shop", "NOK", 100.0))
    pond.delete("rates", [{"currency": "USD"}])  # also from another process
    pay((6, "book shop", "USD", 10.0))

    for row in pond.read("booked").sort_by("payment").to_pylist():
        print("payment {payment}: {shop}, {euro:.2f} euro, {shop_total:.2f} in all".format(**row))
    for row in pond.read("unknown").sort_by("payment").to_pylist():
        print("payment {payment}: no rate for {currency}".format(**row))
