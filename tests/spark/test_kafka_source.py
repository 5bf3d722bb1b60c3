"""A topic on Spark: the same rows as inline, read by workers that keep their connections (law 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.sources.kafka import KafkaSource

pytestmark = pytest.mark.e2e


def test_both_engines_read_the_same(session: Any, make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic(3)
    shown: dict[str, list[list[Any]]] = {"spark": [], "inline": []}
    given: list[dict[str, int]] = []
    ponds = {
        engine: millpond.open(
            tmp_path / engine,
            parallelism=2,
            epoch_rows_max=400,
            **({"spark": session} if engine == "spark" else {"engine": "inline"}),
        )
        for engine in shown
    }
    for pond in ponds.values():
        stream = pond.stream("in", KafkaSource(topic.brokers, topic.name, {"k": int, "v": int}))
        stream.key_by("k").aggregate(n="count(*)", s="sum(v)", id="g").view("g")
    for turn in range(3):
        for partition in range(3):
            fresh = [{"k": n % 7, "v": n * turn} for n in range(100 * (partition + 1))]
            topic.send([b"{bad", *fresh], partition)
            given += fresh
        for engine, pond in ponds.items():
            pond.drain()
            rows = sorted(pond.read("g").to_pylist(), key=lambda row: row["k"])
            shown[engine].append([tuple(row.values()) for row in rows])
            assert sum(pond.errors()["weight"].to_pylist()) == 3 * (turn + 1)
    for pond in ponds.values():
        pond.close()
    assert shown["spark"] == shown["inline"]
    totals = {k: [row["v"] for row in given if row["k"] == k] for k in range(7)}
    assert shown["spark"][-1] == [(k, len(values), sum(values)) for k, values in totals.items()]
