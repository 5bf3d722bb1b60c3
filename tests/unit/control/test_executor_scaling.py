"""Executors follow tasks, simulated: they come late, are bounded, and do not swing."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.autoscaling import POLICY, TRACES, Simulation, ds2
from millpond.control.executor_scaling import ExecutorPolicy, decide_executors

CORES = 4
POLICY_OF = ExecutorPolicy(1, 10, CORES, POLICY.cool_down_us)


def simulated(name: str, policy: ExecutorPolicy) -> list[tuple[int, int, int]]:
    """(when, tasks, executors) of each second of a load, with the tasks that DS2 decides."""
    rate, until_s = TRACES[name]
    run = Simulation(rate)
    run.run(until_s, ds2)
    changes, tasks, executors, changed_us = list(run.changes), 1, 1, None
    seconds: list[tuple[int, int]] = []
    found = []
    for second in range(int(until_s)):
        while changes and changes[0][0] <= second:
            tasks = changes.pop(0)[1]
        seconds.append((second * 1_000_000, tasks))
        decision = decide_executors(seconds[-300:], executors, changed_us, policy)
        if decision is not None:
            assert decision.before == executors != decision.executors and decision.reason
            executors, changed_us = decision.executors, second * 1_000_000
        found.append((second, tasks, executors))
    return found


@pytest.mark.parametrize("name", list(TRACES))
def test_tasks_have_cores_and_executors_do_not_swing(name: str) -> None:
    seconds = simulated(name, POLICY_OF)
    assert all(tasks <= executors * CORES or executors == 10 for _, tasks, executors in seconds)
    changes = [(b[0], b[2] - a[2]) for a, b in itertools.pairwise(seconds) if a[2] != b[2]]
    turns = sum((a > 0) != (b > 0) for (_, a), (_, b) in itertools.pairwise(changes))
    assert turns <= 3, f"it swings: {changes}"
    falls = [at for at, change in changes if change < 0]
    assert all(b - a >= 30 for a, b in itertools.pairwise(falls))
    spare = [executors * CORES - tasks for _, tasks, executors in seconds]
    assert sum(spare) / len(spare) < CORES + 1, "what is not needed is given back"


def test_the_bounds_are_the_limit_of_the_cost() -> None:
    for least, most in ((1, 2), (3, 3), (2, 5)):
        policy = ExecutorPolicy(least, most, CORES, POLICY.cool_down_us)
        executors = {found for second, _, found in simulated("step 1x, 4x, 1x", policy) if second > 60}
        assert executors <= set(range(least, most + 1))
    decision = decide_executors([(0, 100)], 1, None, ExecutorPolicy(1, 2, CORES, 0))
    assert decision is not None and decision.reason == "100 tasks need 25 executors of 4 cores; 2 are allowed"
