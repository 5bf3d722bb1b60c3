"""Windows that share slices are those that repeat every row, and those of the batch query (laws 1, 3, 4 and 8).

A history feeds random rows, some of them late, with crashes, other parallelism and compaction in between.  The
same windows are computed twice in one pond, with and without slices, when they close and while they are open;
DuckDB computes them once more from the pairs of row and window that are not late.
"""

from __future__ import annotations

import datetime
import os
import random
from typing import Any

import pytest

from millpond import Pond, tuning
from millpond.operators.aggregate import Aggregate
from millpond.operators.assign_slices import AssignSlices
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.sliding_aggregate import SlidingAggregate
from millpond.testing.harness import Harness
from millpond.triggers import after_watermark
from millpond.windows import sliding
from tests.oracle.window_model import SCHEMA, START, Case, answered, assigned, difference

SEEDS = int(os.environ.get("MILLPOND_ORACLE_SEEDS", "10")) // 2
FIRST = int(os.environ.get("MILLPOND_ORACLE_FIRST", "0"))
AGGREGATES = {
    "n": "count(*)",
    "total": "sum(n)",
    "mean": "avg(x)",
    "spread": "stddev_pop(x)",
    "lo": "min(x)",
    "hi": "max(n)",
    "more": "sum(n * 3) FILTER (WHERE j = 1)",
}
QUERY = (
    "SELECT {key} window_start, window_end, count(*) n, sum(n)::BIGINT total, avg(x) mean, stddev_pop(x) spread, min(x) lo,"
    " max(n) hi, (sum(n * 3) FILTER (WHERE j = 1))::BIGINT more FROM pairs GROUP BY ALL"
)
SIZES = (("10s", "1s"), ("10s", "3s"), ("7s", "2s"), ("40s", "1s"), ("20s", "5s"), ("6s", "0.25s"))


class SlicedWorld:
    def __init__(self, rng: random.Random, changes: bool) -> None:
        self.rng, self.changes = rng, changes
        size, slide = rng.choice(SIZES)
        windows = sliding(size, slide, rng.choice(["0s", "1s", "300ms", -2]))
        key = rng.choice([(), ("k",), ("k", "j")])
        delay = rng.choice(["0s", "2s", "9s"])
        self.lateness = None if changes else rng.choice([None, "0s", "3s", "700ms"])
        self.case = Case(windows, key, after_watermark(), None, None, False, delay, ("aggregate",), 1.0)
        self.rows: list[dict[str, Any]] = []
        self.harness = Harness(self.define, {"s": SCHEMA}, parallelism=rng.randint(1, 4))

    def define(self, pond: Pond, s: Any) -> None:
        stream = pond.stream("s", s).watermark("at", self.case.delay)
        aggregates = dict(AGGREGATES)
        if self.changes:  # rows that are retracted when another row of the same time comes
            stream = stream.key_by("k", "j", "at").aggregate(id="max(id)", n="sum(n)", x="sum(x)")
            aggregates = {n: a for n, a in AGGREGATES.items() if not a.startswith(("min", "max"))}
        keyed = stream.key_by(*self.case.key)
        for name, least in (("flat", 10**9), ("sliced", 2)):
            before, tuning.SLICED_WINDOWS_MIN = tuning.SLICED_WINDOWS_MIN, least
            try:
                windowed = keyed.window(self.case.windows, on_close=True, time="at")
                windowed.aggregate(id=name, **aggregates).view(name)
                open_yet = keyed.window(self.case.windows, allowed_lateness=self.lateness, time="at")
                open_yet.aggregate(id=f"{name}_open", **aggregates).view(f"{name}_open")
            finally:
                tuning.SLICED_WINDOWS_MIN = before
        assert isinstance(pond.plan.nodes["sliced"].operator, SlidingAggregate)
        operators = [pond.plan.nodes[name].operator for name in ("flat_open", "sliced_open")]
        assert [o.spread is not None for o in operators if isinstance(o, Aggregate)] == [False, True]
        windowed.late().view("late")
        open_yet.late().view("late_open")

    def play(self, epochs: int) -> None:
        rng, now = self.rng, 0.0
        for _ in range(epochs):
            chance = rng.random()
            if chance < 0.1:
                self.harness.crash(midway=rng.random() < 0.5)
            elif chance < 0.25:
                self.harness.rescale(rng.randint(1, 4))
            elif chance < 0.35:
                self.harness.compact()
            now += rng.choice([0, 0, 0.5, 1, 4, 12, 700])
            fresh = [self.row(now, len(self.rows) + i) for i in range(rng.randint(0, 8))]
            if fresh:
                self.harness.feed("s", *fresh)
            self.rows += fresh
            self.harness.epoch()
            self.compare()
        self.harness.watermark("s", datetime.datetime(2040, 1, 1))
        self.harness.epoch()
        self.compare()

    def row(self, now: float, number: int) -> dict[str, Any]:
        rng = self.rng
        second = now - rng.random() * rng.choice([0, 1, 4, 12, 30])
        second = round(second) if self.changes else round(second, 3)
        return {
            "id": number,
            "k": rng.choice(["a", "b", None]),
            "j": rng.choice([1, 1, None]),
            "n": rng.choice([None, -3, 0, 4, 2**40]),
            "x": rng.choice([0.5, 0.1, -2.25, 1e9]),
            "at": START + datetime.timedelta(seconds=second),
        }

    def compare(self) -> None:
        for name in ("", "_open"):
            found = difference(self.harness.view(f"sliced{name}"), self.harness.view(f"flat{name}"))
            assert found is None, found
        counts, nodes = self.harness.pond.head().counts, self.harness.pond.plan.nodes
        late: dict[int, set[int]] = {}
        for step, node in nodes.items():
            if isinstance(node.operator, AssignWindows | AssignSlices) and not getattr(
                node.operator, "late", False
            ):
                after = getattr(node.operator, "after_us", 0)
                late.setdefault(after, set()).add(counts.get(f"late/{step}", 0))
        assert all(len(found) == 1 for found in late.values()), late

    def check(self, name: str, late_name: str) -> None:
        late = self.harness.view(late_name)
        gone = {(r["id"], r["window_start"]) for r in late}
        pairs = [p for p in assigned(self.case, self.rows) if (p["id"], p["window_start"]) not in gone]
        assert len(pairs) + len(gone) == len(assigned(self.case, self.rows))
        shown = [
            {**r, "spread": _rounded(r["spread"]), "mean": _rounded(r["mean"])}
            for r in self.harness.view(name)
        ]
        told = [
            {**r, "spread": _rounded(r["spread"]), "mean": _rounded(r["mean"])}
            for r in answered(self.case, QUERY, pairs)
        ]
        found = difference(shown, told)
        assert found is None, found


def _rounded(value: float | None) -> float | None:
    """DuckDB adds floats in some order; ours are exact."""
    return None if value is None else float(f"{value:.6g}")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_windows_that_share_slices_are_those_of_the_batch_query(seed: int) -> None:
    rng = random.Random(seed)
    world = SlicedWorld(rng, changes=False)
    with world.harness:
        world.play(rng.randint(5, 12))
        world.check("sliced", "late")
        world.check("sliced_open", "late_open")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(SEEDS // 2, 1)))
def test_slices_follow_retractions(seed: int) -> None:
    rng = random.Random(500 + seed)
    world = SlicedWorld(rng, changes=True)
    with world.harness:
        world.play(rng.randint(5, 12))
