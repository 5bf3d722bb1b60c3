"""Load shedding: a source that sends too much is sampled, the counts stay right on average, and then exact.

The target of one microsecond cannot be reached, so the pond sheds whatever it may.  Afterwards it has time,
reads the shed rows again, and the view is exact.

    python examples/load_shedding.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import tempfile

import millpond
from millpond.sources.memory import MemorySource

bids = MemorySource({"item": int, "price": int})


def burst() -> list[dict[str, int]]:
    return [{"item": n % 3, "price": n % 10} for n in range(30_000)]


with millpond.open(tempfile.mkdtemp(), engine="inline", parallelism=2) as pond:
    by_item = pond.stream("bids", bids).key_by("item")
    by_item.aggregate(n="count(*)", total="sum(price)", squares="sum(price * price)").view("by_item")
    bids.push(burst())
    pond.drain()  # the pond measures how fast it is

    pond.shed("bids", target_lag="1us", floor=0.1, recover=False)
    bids.push(burst())
    bids.push(burst())
    pond.drain()
    (bill,) = pond.shedding().to_pylist()
    print(f"{bill['shed'] / (bill['kept'] + bill['shed']):.0%} of the rows were shed")
    for row in pond.bounds("by_item", counts="n", sums={"total": "squares"}).sort_by("item").to_pylist():
        print(f"item {row['item']}: {row['n']} bids, between {row['n_low']:.0f} and {row['n_high']:.0f}")

    pond.shed("bids", target_lag="1h", recover=True)  # from now on there is time
    pond.drain()
    print("exact again:", pond.read("by_item").sort_by("item").column("n").to_pylist())
