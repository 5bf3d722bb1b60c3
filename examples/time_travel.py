"""Savepoint, reads in the past, differences, rollback and fork.

    python examples/time_travel.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import tempfile
from pathlib import Path

import pyarrow as pa

import millpond
from millpond.sources.memory import MemorySource

place = Path(tempfile.mkdtemp())
payments = MemorySource(pa.schema([("account", pa.string()), ("amount", pa.int64())]))


def balances(pond: millpond.Pond, epoch: int | str | None = None) -> dict[str, int]:
    rows = pond.read("balances", epoch=epoch).sort_by("account").to_pylist()
    return {row["account"]: row["balance"] for row in rows}


with millpond.open(place / "pond", engine="inline") as pond:
    stream = pond.stream("payments", payments)
    stream.key_by("account").aggregate(balance="sum(amount)").view("balances")

    payments.push([{"account": "ann", "amount": 100}, {"account": "bob", "amount": 50}])
    first = pond.drain()
    pond.savepoint("before-the-mistake")  # stays readable for as long as it has this name

    payments.push([{"account": "ann", "amount": -999_999}])
    mistake = pond.drain()
    print("now:              ", balances(pond))
    print(
        "in the past:      ", balances(pond, "before-the-mistake"), "also by number:", balances(pond, first)
    )
    print("what changed:     ", pond.diff("balances", first, mistake).to_pylist())

    # A fork begins as the pond was, without copying anything, and goes its own way.
    pond.fork(place / "what-if", epoch=mistake)
    print("a fork begins as: ", balances(millpond.open(place / "what-if")))

    # Rolling back is a new commit that names the old files. The sources go back as well, so that nothing
    # is missed; here they are told to leave the mistake out.
    payments.items[-1] = pa.Table.from_pylist([{"account": "bob", "amount": 7}], schema=payments.schema)
    pond.rollback("before-the-mistake")
    last = pond.drain()
    print("rolled back:      ", balances(pond), f"(epochs only go up: {first}, {mistake}, {last})")
    print("history is kept:  ", balances(pond, mistake))
    print("the fork has its own:", balances(millpond.open(place / "what-if")))
