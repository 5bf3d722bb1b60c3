"""Diagnoses, from simulated times of tasks."""

from __future__ import annotations

import random

import pytest

from millpond.control.symptoms import EPOCHS, TaskTimes, diagnosed


def history(
    seed: int, *, hot: float = 1.0, slow: float = 1.0, straggler: float = 1.0, epochs: int = 20
) -> list[TaskTimes]:
    """Two levels of eight tasks on four hosts: a key of task 5, a host, or ever another task is slow."""
    rng, found = random.Random(seed), []
    for _ in range(epochs):
        levels, hosts = [], []
        for level in range(2):
            where = [f"host{n % 4}" for n in range(8)]
            rng.shuffle(where)
            took = [60_000 * rng.uniform(0.8, 1.25) for _ in range(8)]
            took = [t * (slow if host == "host2" else 1.0) for t, host in zip(took, where, strict=True)]
            took[5] *= hot if level else 1.0
            took[rng.randrange(8)] *= straggler
            levels.append(tuple(int(t) for t in took))
            hosts.append(tuple(where))
        found.append(TaskTimes(tuple(levels), tuple(hosts)))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_causes_are_told_apart(seed: int) -> None:
    assert diagnosed(history(seed)) == ()
    (hot,) = diagnosed(history(seed, hot=5))
    assert (hot.name, hot.where) == ("hot key", "level 1, task 5")
    (host,) = diagnosed(history(seed, slow=4))
    assert (host.name, host.where) == ("slow host", "host host2")
    skewed = diagnosed(history(seed, straggler=6))
    assert skewed and {s.name for s in skewed} == {"skew"}


def test_short_tasks_and_few_epochs_say_nothing() -> None:
    assert diagnosed(history(0, hot=9, epochs=EPOCHS - 1)) == ()
    assert diagnosed([TaskTimes(((100, 100), (100, 5_000, 100)))] * EPOCHS) == ()
    assert diagnosed([TaskTimes(((900_000,), (900_000,)))] * EPOCHS) == ()


def test_a_sink_that_is_behind() -> None:
    (found,) = diagnosed([], {"slow": 300, "quick": 1})
    assert str(found) == "sink behind: sink 'slow'; it lacks 300 epochs"
