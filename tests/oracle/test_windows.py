"""Windows with random contents, triggers and disorder are those of the batch query (laws 1, 3, 5 and 8).

A history feeds random rows in random epochs, with crashes, other parallelism and compaction in between, and
ends when the watermark has passed every window.  Every pair of a row and a window is then either in `late()`
or accounted for: DuckDB computes from those pairs what the views must contain.
MILLPOND_ORACLE_SEEDS says how many histories are played, from seed MILLPOND_ORACLE_FIRST on.
"""

from __future__ import annotations

import datetime
import os
import random
from collections import Counter
from typing import Any

import pytest

from millpond import Pond
from millpond.testing.harness import Harness
from tests.oracle.window_model import (
    CONTENTS,
    SCHEMA,
    Case,
    assigned,
    difference,
    expected,
    random_case,
    random_row,
    sessions_of,
    totals,
)
from tests.sampling import seeds

SEEDS = int(os.environ.get("MILLPOND_ORACLE_SEEDS", "10"))
FIRST = int(os.environ.get("MILLPOND_ORACLE_FIRST", "0"))
US = datetime.timedelta(microseconds=1)


def passed_on(row: Any) -> dict[str, int]:
    return {"id": row.id}


class WindowWorld:
    """A pond with the contents of one kind of windows, and what was fed into it."""

    def __init__(self, case: Case, rng: random.Random) -> None:
        self.case, self.rng = case, rng
        self.rows: list[dict[str, Any]] = []
        self.epochs: list[int] = []  # the number of rows fed before each epoch
        self.panes: list[dict[str, Any]] = []  # all changes of the aggregate
        self.harness = Harness(self.define, {"s": SCHEMA}, parallelism=rng.randint(1, 4))

    def define(self, pond: Pond, s: Any) -> None:
        case = self.case
        windowed = (
            pond.stream("s", s)
            .watermark("at", case.delay)
            .key_by(*case.key)
            .window(
                case.windows,
                trigger=case.trigger,
                allowed_lateness=case.lateness,
                mode=case.mode,
                panes=case.panes,
            )
        )
        for name in case.contents:
            CONTENTS[name].build(windowed, case.key).view(name)
        if not case.merges:
            windowed.process(passed_on, {"id": int}).view("processed")
        windowed.late().view("late")

    def play(self, epochs: int) -> None:
        now = 0.0
        for _ in range(epochs):
            self.something_happens()
            now += self.rng.choice([0, 1, 2, 5, 20, 60]) * self.case.unit_s
            fresh = [
                random_row(self.rng, self.case, now, len(self.rows) + i)
                for i in range(self.rng.randint(0, 6))
            ]
            if fresh:
                self.harness.feed("s", *fresh)
            self.rows += fresh
            self.run()

    def run(self) -> None:
        self.harness.epoch()
        self.panes += self.harness.changes("aggregate")
        self.epochs.append(len(self.rows))

    def something_happens(self) -> None:
        chance = self.rng.random()
        if chance < 0.08:
            self.harness.crash(midway=self.rng.random() < 0.5)
        elif chance < 0.16:
            self.harness.rescale(self.rng.randint(1, 4))
        elif chance < 0.24:
            self.harness.compact()
        if self.rng.random() < 0.6:
            self.harness.advance(self.rng.choice(["1ms", "1s", "3s", "10s"]))

    def end(self) -> None:
        """The watermark and the clock pass everything."""
        self.harness.advance("1h")
        self.run()
        self.harness.watermark("s", datetime.datetime(2040, 1, 1))
        self.run()
        self.harness.advance("1h")
        self.run()

    def check(self) -> None:
        case, late = self.case, self.harness.view("late")
        gone = Counter((r["id"], r["window_start"], r["window_end"]) for r in late)
        assert max(gone.values(), default=0) <= 1, "a row is late twice"
        if case.merges:
            assert len({r["id"] for r in late}) == len(late)
            pairs = sessions_of(case, self.rows, self.epochs, {r["id"] for r in late})
        else:
            pairs = [
                p
                for p in assigned(case, self.rows)
                if (p["id"], p["window_start"], p["window_end"]) not in gone
            ]
            every = {(p["id"], p["window_start"], p["window_end"]) for p in assigned(case, self.rows)}
            assert set(gone) <= every, "a late row is in a window that is not its own"
        if not case.merges:
            given = Counter(r["id"] for r in self.harness.view("processed"))
            assert given == Counter(p["id"] for p in pairs), "each row once in each of its windows"
        if case.mode == "discarding":
            assert all(p["_w"] > 0 for p in self.panes)
            assert totals(case, self.panes, "n", "total") == totals(
                case, expected(case, "aggregate", pairs), "n", "total"
            )
            return
        if not case.settles:
            shown = self.harness.view("aggregate")
            counts = totals(case, expected(case, "aggregate", pairs), "n", "total")
            assert totals(case, shown, "n", "total") == counts
            return
        for name in case.contents:
            found = difference(self.harness.view(name), expected(case, name, pairs))
            assert found is None, f"{name}: {found}"
        if case.mode == "accumulating" and case.trigger is not None:
            assert all(p["_w"] > 0 for p in self.panes)


@pytest.mark.parametrize("seed", seeds(4, FIRST, SEEDS, "MILLPOND_ORACLE_SEEDS"))
def test_windows_are_those_of_the_batch_query(seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng)
    print(seed, case)
    world = WindowWorld(case, rng)
    with world.harness:
        world.play(rng.randint(4, 14))
        world.end()
        world.check()


@pytest.mark.parametrize("seed", seeds(1, FIRST, max(SEEDS // 3, 1), "MILLPOND_ORACLE_SEEDS"))
def test_windows_of_a_table_follow_every_change(seed: int) -> None:
    rng = random.Random(1000 + seed)
    case = random_case(rng, table=True)
    print(seed, case)

    def define(pond: Pond) -> None:
        windowed = pond.table("t", SCHEMA, key="id").key_by(*case.key).window(case.windows, time="at")
        for name in case.contents:
            CONTENTS[name].build(windowed, case.key).view(name)

    rows: dict[int, dict[str, Any]] = {}
    with Harness(define, {}, parallelism=rng.randint(1, 4)) as harness:
        for _ in range(rng.randint(3, 8)):
            chance = rng.random()
            if chance < 0.1:
                harness.crash(midway=rng.random() < 0.5)
            elif chance < 0.2:
                harness.rescale(rng.randint(1, 4))
            elif chance < 0.3:
                harness.compact()
            for _ in range(rng.randint(1, 6)):
                number = rng.randrange(16)
                if number in rows and rng.random() < 0.6:
                    harness.retract("t", rows.pop(number))
                else:
                    rows[number] = random_row(rng, case, 0.0, number)
                    harness.feed("t", rows[number])
            harness.epoch()
            pairs = (
                sessions_of(case, list(rows.values()), [], set())
                if case.merges
                else assigned(case, list(rows.values()))
            )
            for name in case.contents:
                found = difference(harness.view(name), expected(case, name, pairs))
                assert found is None, f"{name}: {found}"
