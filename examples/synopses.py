"""Synopses: distinct visitors and slow requests of every minute from sketches, merged to any longer time.

Each minute keeps a sketch of a few kilobytes, however many visitors there are.

    python examples/synopses.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import random
import tempfile

import millpond
from millpond.sources.memory import MemorySource

random.seed(7)
hits = MemorySource({"minute": int, "who": str, "ms": float})

with millpond.open(tempfile.mkdtemp(), engine="inline", parallelism=2) as pond:
    minutes = pond.stream("hits", hits).key_by("minute")
    minutes.aggregate(
        people="approx_count_distinct(who)",
        p99="approx_quantile(ms, 0.99)",
        visitors="hll_sketch(who)",
        latency="kll_sketch(ms)",
    ).view("minutes")
    for minute in range(3):
        hits.push(
            [
                {"minute": minute, "who": f"u{random.randrange(3_000)}", "ms": random.expovariate(1 / 40)}
                for _ in range(2_000)
            ]
        )
        pond.drain()
    for row in pond.sql("select minute, people, round(p99) as p99 from minutes order by minute"):
        print(f"minute {row[0]}: about {row[1]} people, 99 % of the requests took at most {row[2]:.0f} ms")
    (whole,) = pond.sql(
        "select hll_estimate(hll_merge(visitors)), kll_quantile(kll_merge(latency), 0.99) from minutes"
    )
    print(f"all minutes: about {whole[0]} people, {whole[1]:.0f} ms")
