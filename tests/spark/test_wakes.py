"""Epochs without input on Spark: one task without splits at the head of the chain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millpond
from millpond.clock import ManualClock
from millpond.sources.memory import MemorySource
from tests.unit.engine.hold import SCHEMA, SECOND, hold


def test_what_is_due_is_fired_on_spark_too(session: Any, tmp_path: Path) -> None:
    clock = ManualClock(100 * SECOND)
    with millpond.open(
        tmp_path / "pond", spark=session, clock=clock, parallelism=2, durable=False, checks=True
    ) as pond:
        source = MemorySource(SCHEMA)
        late = pond.stream("in", source).key_by("k")._then("hold", hold(SECOND), "hold")
        late.view("late")
        late.key_by("v").aggregate(id="by_v", n="count(*)").view("by_v")
        source.push(*[[{"k": k, "v": k % 3}] for k in range(12)])
        before = pond.drain()
        clock.advance(5 * SECOND)
        assert pond.drain() == before + 1
        assert (pond.head().kind, pond.head().admitted) == ("epoch", {})
        assert pond.head().metrics["tasks"] == [1, 2, 2]
        assert sorted(pond.read("late")["k"].to_pylist()) == list(range(12))
        assert sorted(map(tuple, (r.values() for r in pond.read("by_v").to_pylist()))) == [
            (0, 4),
            (1, 4),
            (2, 4),
        ]
