"""Windows of sessions that are joined, panes and rows in order, on Spark as inline (laws 1 and 3)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import millpond
from millpond.clock import ManualClock
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from millpond.triggers import after_count, after_watermark
from millpond.windows import sessions
from tests.oracle import event_time_plans
from tests.oracle.event_time_plans import SCHEMA, script, seen

VIEWS = ("open", "closed", "outer", "panes", "ordered", "counted")
EPOCHS = 6


@pytest.fixture(autouse=True, scope="module")
def functions_by_value() -> Iterator[None]:
    """The workers cannot import the tests."""
    cloudpickle.register_pickle_by_value(event_time_plans)
    yield
    cloudpickle.unregister_pickle_by_value(event_time_plans)


def define(pond: Pond, sources: dict[str, MemorySource]) -> None:
    a, b = (pond.stream(name, source).watermark("at", "2s").key_by("k") for name, source in sources.items())
    a.window(sessions("2s")).join(b.window(sessions("2s")), "full").view("open")
    one, two = (side.window(sessions("2s"), on_close=True) for side in (a, b))
    one.join(two, "inner").view("closed")
    one.join(two, "left").view("outer")
    trigger = after_watermark(early=after_count(2), late=after_count(1))
    panes = a.window(sessions("2s"), trigger=trigger, allowed_lateness="3s", panes=True)
    panes.aggregate(n="count(*)", total="sum(v)").view("panes")
    a.in_order(slack=3).stream.view("ordered")
    b.in_order().process(seen, {"k": str, "n": int}).view("counted")


def played(path: Path, seed: int, **options: Any) -> list[dict[str, Any]]:
    """By epoch: the rows of all views and their changes, those that come in order as they came."""
    sources = {name: MemorySource(SCHEMA) for name in ("a", "b")}
    clock = ManualClock(1_700_000_000_000_000)
    found = []
    with millpond.open(path, clock=clock, durable=False, **options) as pond:
        define(pond, sources)
        for seconds, items in script(seed, EPOCHS):
            clock.advance(seconds * 1_000_000)
            for source, partition, item in items:
                if source in sources:
                    sources[source].push(item, partition=partition)
            before = pond.status.epoch or 0
            pond.drain()
            state: dict[str, Any] = {view: sorted(map(str, pond.read(view).to_pylist())) for view in VIEWS}
            for view in VIEWS:
                told = [
                    str(row) for delta in pond.changes(view, since=before) for row in delta.table.to_pylist()
                ]
                state[f"changes of {view}"] = told if view == "ordered" else sorted(told)
            found.append(state)
    return found


def test_sessions_and_order_are_the_same_on_spark(session: Any, tmp_path: Path) -> None:
    seed = random.Random(18).randrange(1000)
    inline = played(tmp_path / "inline", seed, engine="inline", parallelism=1)
    spark = played(tmp_path / "spark", seed, engine="spark", spark=session, parallelism=3)
    for epoch, (wanted, got) in enumerate(zip(inline, spark, strict=True)):
        for name, rows in wanted.items():
            assert got[name] == rows, f"{name} of epoch {epoch}"
    assert all(any(state[view] for state in inline) for view in VIEWS)
