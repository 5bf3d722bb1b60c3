"""Scaling decisions, simulated: pipelines with known costs under step, ramp, spike and daily loads."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.autoscaling import (
    BASE,
    LEVELS,
    POLICY,
    TRACES,
    Rate,
    Simulation,
    day,
    ds2,
    epoch,
    measured,
    optimum,
    ramp,
    spike,
    steps,
    threshold,
)
from millpond.control.scaling import (
    ScalingPolicy,
    TrueRates,
    costs_of,
    decide,
    tasks_for,
)
from tests.sampling import first


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


@pytest.mark.slow
def test_a_threshold_needs_more_decisions_and_falls_behind() -> None:
    ours, usual = Simulation(steps), Simulation(steps)
    ours.run(1800, ds2)
    usual.run(1800, threshold)
    assert len(usual.changes) > 5 * len(ours.changes)
    assert max(lag for _, lag in usual.lags) > 2 * max(lag for _, lag in ours.lags)


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


@pytest.mark.parametrize("name", first(1, list(TRACES)))
def test_a_rule_by_utilisation_is_later_on_every_load(name: str) -> None:
    """Same pipeline, same loads: it decides at least as often, and is behind for longer."""
    ours, usual = (measured(*TRACES[name], rule) for rule in (ds2, threshold))
    assert ours.late_share <= usual.late_share and ours.lag_max_s <= usual.lag_max_s + 1
    assert ours.cost < 1.8


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
