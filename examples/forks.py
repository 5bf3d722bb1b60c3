"""Two teams fork one pond at a savepoint and try other code on its state; the pond itself does not notice.

    python examples/forks.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import millpond
from millpond import Process, ProcessContext, ValueState
from millpond.sources.files import FileSource

place = Path(tempfile.mkdtemp())
(orders := place / "orders").mkdir()


class BySum(Process):
    spent = ValueState(int, default=0)

    def __init__(self, gold: int) -> None:
        self.gold = gold  # a setting, not state: it is part of the code

    def on_row(self, row: Any, ctx: ProcessContext) -> dict[str, Any]:
        self.spent.value += row.price
        return {"spent": self.spent.value, "gold": self.spent.value >= self.gold}


class ByBest(BySum):
    """Other code with one more state: that begins with its default, and `spent` goes on as it was."""

    best = ValueState(int, default=0)

    def on_row(self, row: Any, ctx: ProcessContext) -> dict[str, Any]:
        self.spent.value += row.price
        self.best.value = max(self.best.value, row.price)
        return {"spent": self.spent.value, "gold": self.best.value >= self.gold}


def opened(name: str, code: Any) -> millpond.Pond:
    """The same flow in each pond; only the code of the step `level` differs."""
    pond = millpond.open(place / name, engine="inline")
    stream = pond.stream("orders", FileSource(str(orders), format="json"))
    level = {"spent": int, "gold": bool}  # with latest=True: one row per key, which comes first
    stream.key_by("customer").process(code, level, latest=True, id="level").view("levels")
    return pond


def arrive(name: str, count: int) -> None:
    rows = [{"customer": random.choice("abcdef"), "price": random.randrange(1, 100)} for _ in range(count)]
    (orders / f"{name}.json").write_text("\n".join(json.dumps(row) for row in rows))


def shown(pond: millpond.Pond) -> str:
    rows = pond.read("levels").sort_by("customer").to_pylist()
    return ", ".join(f"{row['customer']} {row['spent']}{' gold' * row['gold']}" for row in rows)


random.seed(11)
arrive("1", 40)
with opened("shop", BySum(gold=400)) as shop:
    shop.drain()
    shop.savepoint("before-the-experiments")
    print("at the savepoint:", before := shown(shop))
    arrive("2", 20)  # the shop and the forks read the same folder, each in its own time
    shop.drain()
    print("the shop goes on:", now := shown(shop))

    for name, code in (("team-a", BySum(gold=300)), ("team-b", ByBest(gold=95))):
        shop.fork(place / name, epoch="before-the-experiments")  # no data is copied
        with opened(name, code) as fork:
            assert shown(fork) == before
            fork.drain()
            print(f"{name}:          ", shown(fork))
    print("the shop did not notice:", shown(shop) == now)
