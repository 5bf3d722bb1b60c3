"""Scaling decisions, simulated: pipelines with known costs under step, ramp, spike and daily loads."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from millpond.control.scaling import (
    EpochLoad,
    LevelCost,
    ScalingPolicy,
    TrueRates,
    costs_of,
    decide,
    tasks_for,
)
from tests.sampling import first

POLICY = ScalingPolicy(tasks_max=64)
LEVELS = (LevelCost(5_000, 12.0), LevelCost(8_000, 20.0))
FIXED_MS = 80.0
PER_TASK = 1e6 / sum(
    level.row_us for level in LEVELS
)  # rows that a task processes in a second of useful time
Rate = Callable[[float], float]


def test_the_word_count_of_the_paper_needs_one_decision() -> None:
    """From one task of each, and from too many: the decision does not depend on where it starts."""
    rates = {"split": TrueRates(1_000, 20_000), "count": TrueRates(10_000, 10_000)}
    edges = [("source", "split"), ("split", "count")]
    assert tasks_for(edges, rates, {"source": 10_000}) == {"split": 10, "count": 20}
    assert tasks_for(edges, rates, {"source": 500}) == {"split": 1, "count": 1}


def test_a_join_needs_what_both_sides_emit() -> None:
    rates = {"left": TrueRates(100, 50), "right": TrueRates(100, 200), "join": TrueRates(1_000, 10)}
    edges = [("a", "left"), ("b", "right"), ("left", "join"), ("right", "join")]
    assert tasks_for(edges, rates, {"a": 1_000, "b": 1_000}) == {"left": 10, "right": 10, "join": 3}


def test_operators_in_a_cycle_are_refused() -> None:
    with pytest.raises(ValueError, match="wait for each other"):
        tasks_for([("s", "a"), ("a", "b"), ("b", "a")], {}, {"s": 1})


def test_the_fixed_cost_is_not_taken_for_a_cost_of_rows() -> None:
    loads = [epoch(n, tasks) for n in (1_000, 30_000, 7_000) for tasks in (1, 4)]
    for found, known in zip(costs_of(loads), LEVELS, strict=True):
        assert found.task_us == pytest.approx(known.task_us, rel=1e-3)
        assert found.row_us == pytest.approx(known.row_us, rel=1e-3)


def epoch(rows: int, tasks: int, at_us: int = 0, backlog: int = 0, noise: float = 1.0) -> EpochLoad:
    useful = tuple(int(noise * (level.task_us * tasks + level.row_us * rows)) for level in LEVELS)
    ms = FIXED_MS + sum(useful) / tasks / 1000
    return EpochLoad(at_us, rows, ms, backlog, (tasks,) * len(LEVELS), useful)


@dataclass
class Simulation:
    """A pipeline that runs one epoch after the other, and a controller that changes its tasks."""

    rate: Rate
    seed: int = 0
    tasks: int = 1
    now_s: float = 0.0
    backlog: float = 0.0
    changes: list[tuple[float, int]] = field(default_factory=list)
    lags: list[tuple[float, float]] = field(default_factory=list)

    def run(
        self, until_s: float, controller: Callable[[list[EpochLoad], int, int | None], int | None]
    ) -> None:
        rng, history, changed_us = random.Random(self.seed), list[EpochLoad](), None
        while self.now_s < until_s:
            budget = int(4.0 * self.tasks * PER_TASK)
            rows = int(min(self.backlog, budget))
            load = epoch(rows, self.tasks, int(self.now_s * 1e6), noise=rng.uniform(0.9, 1.1))
            took = max(0.5, load.ms / 1000)
            self.backlog += self.rate(self.now_s) * took - rows
            self.now_s += took
            history.append(
                EpochLoad(int(self.now_s * 1e6), rows, load.ms, int(self.backlog), load.tasks, load.useful_us)
            )
            self.lags.append((self.now_s, self.backlog / max(1.0, self.rate(self.now_s))))
            if len(history) % 5:
                continue  # deciding costs more than simulating
            chosen = controller(history[-300:], self.tasks, changed_us)
            if chosen is not None and chosen != self.tasks:
                self.tasks, changed_us = chosen, int(self.now_s * 1e6)
                self.changes.append((self.now_s, chosen))


def ds2(history: list[EpochLoad], tasks: int, changed_us: int | None) -> int | None:
    found = decide(history, tasks, changed_us, POLICY)
    return None if found is None else found.tasks


def threshold(history: list[EpochLoad], tasks: int, changed_us: int | None) -> int | None:
    """A usual autoscaler: one task more above 80 % utilisation, one fewer below 50 %."""
    history = [load for load in history if load.at_us > (changed_us or 0)]
    if len(history) < POLICY.epochs_min or history[-1].at_us - (changed_us or 0) < POLICY.cool_down_us:
        return None
    span_us = history[-1].at_us - history[0].at_us
    used = sum(sum(load.useful_us) / tasks for load in history[1:]) / max(1, span_us)
    return tasks + 1 if used > 0.8 else max(1, tasks - 1) if used < 0.5 else None


def optimum(rate: float) -> int:
    fixed = min(0.5, FIXED_MS / POLICY.target_ms)
    return max(1, math.ceil(rate / PER_TASK / (POLICY.busy_max * (1 - fixed))))


BASE = 5 * PER_TASK


def steps(at_s: float) -> float:
    return 4 * BASE if 600 <= at_s < 1200 else BASE


@pytest.mark.parametrize("seed", first(2, range(50)))
def test_a_step_takes_at_most_three_decisions(seed: int) -> None:
    run = Simulation(steps, seed)
    run.run(1800, ds2)
    for begin, rate in ((0, BASE), (600, 4 * BASE), (1200, BASE)):
        made = [tasks for at, tasks in run.changes if begin <= at < begin + 600]
        assert 1 <= len(made) <= 3, f"at {begin} s: {made}"
        assert abs(made[-1] - optimum(rate)) <= max(1, POLICY.change_min * optimum(rate)), made
        lag = [lag for at, lag in run.lags if begin + 500 <= at < begin + 600]
        assert max(lag) < 3.0


def test_a_threshold_needs_more_decisions_and_falls_behind() -> None:
    ours, usual = Simulation(steps), Simulation(steps)
    ours.run(1800, ds2)
    usual.run(1800, threshold)
    assert len(usual.changes) > 5 * len(ours.changes)
    assert max(lag for _, lag in usual.lags) > 2 * max(lag for _, lag in ours.lags)


def ramp(at_s: float) -> float:
    return BASE * (1 + 3 * min(1.0, at_s / 1800))


def spike(at_s: float) -> float:
    return 6 * BASE if 600 <= at_s < 630 else BASE


def day(at_s: float) -> float:
    return BASE * (2.5 - 1.5 * math.cos(2 * math.pi * at_s / 3600))


@pytest.mark.parametrize(
    ("rate", "until_s"), [(ramp, 2400), (spike, 1800), (day, 3600)], ids=["ramp", "spike", "day"]
)
def test_lag_returns_below_its_target(rate: Rate, until_s: float) -> None:
    run = Simulation(rate)
    run.run(until_s, ds2)
    assert max(lag for at, lag in run.lags if at > until_s - 120) < 3.0
    assert all(lag < 60 for at, lag in run.lags if at > 120)
    directions = [b > a for (_, a), (_, b) in itertools.pairwise(run.changes)]
    turns = sum(a != b for a, b in itertools.pairwise(directions))
    assert turns <= 3, f"it swings: {run.changes}"


def test_nothing_is_decided_before_enough_is_known() -> None:
    few = [epoch(10_000, 1, n * 1_000_000, 10**7) for n in range(2)]
    assert decide(few, 1, None, POLICY) is None
    assert decide([], 1, None, POLICY) is None
    more = [epoch(10_000, 1, n * 1_000_000, 10**7) for n in range(5)]
    assert decide(more, 1, None, POLICY) is not None
    assert decide(more, 1, 3_000_000, POLICY) is None, "the last change was a second ago"


def test_the_bounds_hold_and_the_reason_names_them() -> None:
    more = [epoch(10_000, 1, n * 1_000_000, 10**8) for n in range(5)]
    found = decide(more, 1, None, ScalingPolicy(tasks_max=4))
    assert found is not None and found.tasks == 4
    assert "4 are allowed" in found.reason and "rows/s arrive" in found.reason
    idle = [epoch(10, 8, n * 1_000_000) for n in range(5)]
    down = decide(idle, 8, None, ScalingPolicy(tasks_min=2, tasks_max=64))
    assert down is not None and down.tasks == 2
