"""Joins of windows with a trigger: each pane is the join of the rows that it released (laws 1, 3 and 8).

The same windows are computed a second time from one stream with the rows of both sides, with DuckDB's join of the
rows of each window.  Both have the same trigger, which `tests/beam` checks against Beam, so they deliver the
same panes: in each epoch, with crashes, other parallelism and compaction in between.  At the end, what
is shown is the join of all rows that were not late.
"""

from __future__ import annotations

import datetime
import os
import random
from collections import Counter
from typing import Any

import pytest

from millpond import Pond
from millpond.operators.held_for_trigger import HoldsForTrigger
from millpond.testing.harness import Harness
from millpond.triggers import (
    Trigger,
    after_any,
    after_count,
    after_delay,
    after_watermark,
    always,
    every,
    never,
    repeatedly,
)
from millpond.windows import Windows, everything, sessions, sliding, tumbling
from tests.oracle.window_model import START

SEEDS = int(os.environ.get("MILLPOND_ORACLE_SEEDS", "12"))
FIRST = int(os.environ.get("MILLPOND_ORACLE_FIRST", "0"))
SCHEMA = {"id": int, "k": str, "at": datetime.datetime}
KINDS = ("inner", "left", "right", "full", "semi", "anti")
MODES = ("retracting", "accumulating", "discarding")
WINDOWS: tuple[Windows, ...] = (tumbling("5s"), sliding("6s", "3s"), sessions("3s"), everything())
COMPLETE: tuple[Trigger, ...] = (  # every row that is not late is in a pane at last
    after_watermark(early=after_count(2), late=after_count(1)),
    after_watermark(early=every("4s"), late=always()),
    repeatedly(after_count(3)),
    repeatedly(after_any(after_count(4), after_delay("3s"))),
    always(),
)
OTHERS: tuple[Trigger, ...] = (after_count(3), never(), after_watermark(early=after_count(2)))
SIDE = "(SELECT id, k FROM input WHERE side = {})"
PAIRS = "a.k = b.k"  # rows without a key match nothing


def query(kind: str) -> str:
    """DuckDB's join of the rows of one key and window."""
    left, right = (SIDE.format(n) for n in (0, 1))
    if kind in ("semi", "anti"):
        no = "NOT" if kind == "anti" else ""
        exists = f"{no} EXISTS (SELECT 1 FROM {right} b WHERE {PAIRS})"
        return f"SELECT id AS l, NULL::BIGINT AS r FROM {left} a WHERE {exists}"
    return f"SELECT a.id AS l, b.id AS r FROM {left} a {kind} JOIN {right} b ON {PAIRS}"


class JoinWorld:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.windows = rng.choice(WINDOWS)
        self.mode = rng.choice(MODES)
        self.kind = rng.choice(KINDS)
        ends = self.windows != everything()
        self.complete = rng.random() < 0.6
        trigger = rng.choice(COMPLETE if self.complete else OTHERS)
        if not ends:
            trigger = rng.choice([*COMPLETE[2:], OTHERS[0]])
        self.options: dict[str, Any] = {
            "trigger": trigger,
            "mode": self.mode,
            "panes": True,
            "allowed_lateness": rng.choice([None, "2s", "20s"]) if ends else None,
        }
        self.apart = rng.random() < 0.5  # do the watermarks of both sides differ?
        self.marks = {"a": -10.0, "b": -10.0}
        self.count = 0
        self.harness = Harness(self.define, {"a": SCHEMA, "b": SCHEMA}, parallelism=rng.randint(1, 4))

    def define(self, pond: Pond, a: Any, b: Any) -> None:
        sides = [
            pond.stream(name, source, event_time="at", delay="10000s")
            for name, source in (("a", a), ("b", b))
        ]
        left, right = (side.key_by("k").window(self.windows, **self.options) for side in sides)
        left.join(right, self.kind, id="joined").view("joined")  # type: ignore[arg-type]
        both = sides[0].with_columns(side="0").union(sides[1].with_columns(side="1"))
        whole = both.key_by("k").window(self.windows, **self.options)
        whole.apply(sql=query(self.kind)).view("told")

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
            now += rng.choice([0, 0.5, 1, 4, 12])
            if rng.random() < 0.4:
                self.harness.advance(rng.choice(["1s", "3s", "5s"]))
            for side in "ab":
                fresh = [self.row(side, now) for _ in range(rng.choice([0, 0, 1, 3]))]
                if fresh:
                    self.harness.feed(side, *fresh)
            if rng.random() < 0.5:
                self.move(now - rng.choice([0, 2, 5]))
            self.compare()
        for side in "ab":
            self.harness.watermark(side, datetime.datetime(2040, 1, 1))
        self.harness.advance("1h")
        self.compare()

    def row(self, side: str, now: float) -> dict[str, Any]:
        second = now - self.rng.random() * self.rng.choice([0, 1, 4, 12])
        if self.apart:  # the whole stream would take rows that are late for their own side
            second = max(second, self.marks[side])
        self.count += 1
        at = START + datetime.timedelta(seconds=round(second, 1))
        return {"id": self.count, "k": self.rng.choice(["x", "y", None]), "at": at}

    def move(self, second: float) -> None:
        for side in self.rng.sample("ab", self.rng.randint(1, 2)) if self.apart else "ab":
            self.marks[side] = max(self.marks[side], second)
            self.harness.watermark(side, START + datetime.timedelta(seconds=self.marks[side]))

    def compare(self) -> None:
        self.harness.epoch()
        changes, views = [], []
        for name in ("joined", "told"):
            changes.append(Counter(plain(r) for r in self.harness.changes(name) for _ in range(abs(r["_w"]))))
            views.append(Counter(map(plain, self.harness.view(name))))
        assert changes[0] == changes[1], f"{changes[0] - changes[1]} instead of {changes[1] - changes[0]}"
        assert views[0] == views[1]
        nodes, counts = self.harness.pond.plan.nodes, self.harness.pond.head().counts
        late = {
            counts.get(f"late/{step}", 0)
            for step, node in nodes.items()
            if isinstance(node.operator, HoldsForTrigger)
        }
        assert len(late) == 1, late
        assert not self.harness.errors()


def plain(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of either view; that of the pairs has NULL keys where both are NULL, and the query too."""
    ids = (row["l"], row["r"]) if "l" in row else (row.get("id"), row.get("id_right"))
    rest = ("k", "window_start", "window_end", "pane", "pane_timing", "pane_last")
    return (*ids, *(row[c] for c in rest), row.get("_w", 1) > 0)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_panes_of_a_join_are_the_joins_of_what_they_released(seed: int) -> None:
    rng = random.Random(f"trigger joins {seed}")
    world = JoinWorld(rng)
    with world.harness:
        world.play(rng.randint(4, 10))
        held = [s for s in world.harness.pond.states() if s.state in ("windows", "rows") and s.rows]
        shown = {view.table for view in world.harness.pond.plan.views.values()}
        left = [s for s in held if f"{s.step}/{s.state}" not in shown]
        assert not left or world.windows == everything(), left
