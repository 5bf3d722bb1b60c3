"""Autoscaling, simulated: pipelines with known costs under step, ramp, spike and daily loads.

Law: both rules see the same epochs of the same simulated pipeline: `control.scaling`, and a usual autoscaler
by utilisation (one task more above 80 %, one fewer below 50 %).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from millpond.control.scaling import EpochLoad, LevelCost, ScalingPolicy, decide

POLICY = ScalingPolicy(tasks_max=64)
LEVELS = (LevelCost(5_000, 12.0), LevelCost(8_000, 20.0))
FIXED_MS = 80.0
PER_TASK = 1e6 / sum(
    level.row_us for level in LEVELS
)  # rows that a task processes in a second of useful time
Rate = Callable[[float], float]
Controller = Callable[[list[EpochLoad], int, int | None], int | None]


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

    def run(self, until_s: float, controller: Controller) -> None:
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


def ramp(at_s: float) -> float:
    return BASE * (1 + 3 * min(1.0, at_s / 1800))


def spike(at_s: float) -> float:
    return 6 * BASE if 600 <= at_s < 630 else BASE


def day(at_s: float) -> float:
    return BASE * (2.5 - 1.5 * math.cos(2 * math.pi * at_s / 3600))


TRACES: dict[str, tuple[Rate, float]] = {
    "step 1x, 4x, 1x": (steps, 1800),
    "ramp 1x to 4x": (ramp, 2400),
    "spike 6x for 30 s": (spike, 1800),
    "daily curve 1x to 4x": (day, 3600),
}


@dataclass(frozen=True)
class TraceResult:
    decisions: int
    lag_max_s: float  # after the first two minutes
    late_share: float  # of the epochs after them: lag above three seconds
    cost: float  # task-seconds, as a multiple of the least that suffices


def measured(rate: Rate, until_s: float, controller: Controller) -> TraceResult:
    run = Simulation(rate, tasks=optimum(rate(0.0)))
    run.run(until_s, controller)
    later = [lag for at, lag in run.lags if at > 120]
    used, tasks, changes = 0.0, optimum(rate(0.0)), list(run.changes)
    for second in range(int(until_s)):
        while changes and changes[0][0] <= second:
            tasks = changes.pop(0)[1]
        used += tasks
    least = sum(optimum(rate(float(second))) for second in range(int(until_s)))
    return TraceResult(
        len(run.changes), max(later), sum(lag > 3.0 for lag in later) / len(later), used / least
    )


def run(console: Console) -> None:
    table = Table("load", "rule", "decisions", "largest lag", "epochs with lag above 3 s", "task-seconds")
    for name, (rate, until_s) in TRACES.items():
        for rule, controller in (("DS2", ds2), ("80 %/50 %", threshold)):
            got = measured(rate, until_s, controller)
            table.add_row(
                name,
                rule,
                str(got.decisions),
                f"{got.lag_max_s:.1f} s",
                f"{got.late_share:.0%}",
                f"{got.cost:.2f}x",
            )
    console.print(table)
