"""Decides how many tasks an epoch needs, from the epochs before it.

It is DS2 (Kalavri et al., OSDI 2018): the rows that an operator processed are divided by the time in which
it was useful, not by the time that passed.  Such a rate does not depend on how busy the operator was, so one
pass over the levels, in topological order, finds the number of tasks for any input rate.  An epoch also has a
cost that no row causes: the useful time of a level is fitted as ``a * tasks + b * rows`` over several epochs.

Tasks are added as soon as the rows of the last seconds need them, and taken away when those of the last
minutes did not: a pause in the input is not worth two changes.

Law: everything here is a pure function of the history, so decisions can be simulated and explained.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

SURE = 0.05  # the standard error that a fitted cost of a row may have, as a share of it


@dataclass(frozen=True)
class TrueRates:
    """What one task of an operator processes and emits in a second of useful time."""

    rows_in: float
    rows_out: float


def tasks_for(
    edges: Sequence[tuple[str, str]], rates: Mapping[str, TrueRates], sources: Mapping[str, float]
) -> dict[str, int]:
    """Return the tasks that each operator needs when the sources emit these rows per second.

    The word count of the DS2 paper: a million sentences a minute, of twenty words; a task splits 100,000
    sentences a minute, and another counts a million words a minute.

    >>> minute = 60.0
    >>> rates = {
    ...     "split": TrueRates(100_000 / minute, 2_000_000 / minute),
    ...     "count": TrueRates(1_000_000 / minute, 1_000_000 / minute),
    ... }
    >>> tasks_for([("source", "split"), ("split", "count")], rates, {"source": 1_000_000 / minute})
    {'split': 10, 'count': 20}
    """
    emitted, found = dict(sources), {}
    for name in _in_order(edges, sources):
        if name in sources:
            continue
        needed = sum(emitted[before] for before, after in edges if after == name)
        found[name] = max(1, _ceil(needed / rates[name].rows_in))
        emitted[name] = needed * rates[name].rows_out / rates[name].rows_in
    return found


def _in_order(edges: Sequence[tuple[str, str]], sources: Mapping[str, float]) -> list[str]:
    order, left = list(sources), list(dict.fromkeys(after for _, after in edges))
    while left:
        ready = [n for n in left if all(before in order for before, after in edges if after == n)]
        if not ready:
            raise ValueError(f"operators wait for each other or for no source: {left}")
        order += ready
        left = [n for n in left if n not in ready]
    return order


def _ceil(tasks: float) -> int:
    return math.ceil(tasks - 1e-9)  # ten tasks that are just enough are enough


@dataclass(frozen=True)
class EpochLoad:
    """One epoch, from its manifest."""

    at_us: int
    rows: int
    ms: float
    backlog_rows: int
    tasks: tuple[int, ...]  # of each level
    useful_us: tuple[int, ...]  # of all tasks of each level together


@dataclass(frozen=True)
class LevelCost:
    task_us: float  # of a task, whatever it gets
    row_us: float  # of a row that the epoch admits


@dataclass(frozen=True)
class ScalingPolicy:
    tasks_min: int = 1
    tasks_max: int = 2
    busy_max: float = 0.8  # the share of time that tasks may be useful
    catch_up_s: float = 60.0  # within which a backlog should be gone
    target_ms: int = 1_000  # how long an epoch should take
    change_min: float = 0.2  # smaller changes are not worth it
    cool_down_us: int = 30_000_000  # between two changes
    recent_us: int = 10_000_000  # the time over which the rate of arrivals is measured
    hold_us: int = 120_000_000  # tasks that were needed within this time are not taken away
    epochs_min: int = 3  # before anything is known


@dataclass(frozen=True)
class ScalingDecision:
    before: int
    tasks: int
    levels: tuple[int, ...]  # the tasks that each level needs; levels run one after the other
    rows_per_s: float  # the rate that is needed: of arrivals, and to catch up
    reason: str = field(compare=False)


def costs_of(history: Sequence[EpochLoad]) -> tuple[LevelCost, ...]:
    """Fit the useful time of each level; an epoch that did not run a level does not count for it.

    >>> epochs = [EpochLoad(0, n, 0, 0, (2,), (2_000 + 3 * n,)) for n in (1_000, 2_000)]
    >>> [(round(c.task_us), round(c.row_us)) for c in costs_of(epochs)]
    [(1000, 3)]
    """
    depth = max((len(load.tasks) for load in history), default=0)
    return tuple(
        _cost([(e.tasks[n], e.rows, e.useful_us[n]) for e in history if len(e.tasks) > n])
        for n in range(depth)
    )


def _cost(seen: Sequence[tuple[int, int, int]]) -> LevelCost:
    """The line through the useful time of a task over its rows.

    Epochs that are alike say little about it: then rows are taken for the cause of all time.
    """
    tasks, rows, useful = (np.array(column, np.float64) for column in zip(*seen, strict=True))
    by_rows_only = LevelCost(0.0, float(useful.sum() / max(1.0, rows.sum())))
    x, y = rows / tasks, useful / tasks
    spread = float(((x - x.mean()) ** 2).sum())
    if spread == 0:
        return by_rows_only
    row_us = float(((x - x.mean()) * (y - y.mean())).sum()) / spread
    task_us = float(y.mean() - row_us * x.mean())
    error = math.sqrt(float(((y - task_us - row_us * x) ** 2).sum()) / max(1, len(x) - 2) / spread)
    return LevelCost(task_us, row_us) if task_us >= 0 and error < SURE * row_us else by_rows_only


def arrivals_per_s(history: Sequence[EpochLoad]) -> float:
    """Rows that arrived per second: those admitted after the first epoch, and the growth of the backlog.

    >>> arrivals_per_s([EpochLoad(0, 9, 0, 100, (), ()), EpochLoad(2_000_000, 50, 0, 150, (), ())])
    50.0
    """
    first, last = history[0], history[-1]
    arrived = sum(load.rows for load in history[1:]) + last.backlog_rows - first.backlog_rows
    return max(0.0, arrived * 1e6 / max(1, last.at_us - first.at_us))


def decide(
    history: Sequence[EpochLoad], tasks: int, changed_us: int | None, policy: ScalingPolicy
) -> ScalingDecision | None:
    """Return the change that the history asks for; None if there is none, or it is too early for one.

    `history` has the newest epochs, also those before the last change; `tasks` is the parallelism now.
    """
    ran = [load for load in history if load.tasks and load.rows]
    if len(ran) < policy.epochs_min:
        return None
    now_us = ran[-1].at_us
    if changed_us is not None and now_us - changed_us < policy.cool_down_us:
        return None
    costs, fixed = costs_of(ran), _fixed_share(ran, policy.target_ms)
    arriving = arrivals_per_s(_since(history, now_us - policy.recent_us))
    # What arrives during an epoch waits for the next one, however fast the epochs are.
    waiting = max(0.0, history[-1].backlog_rows - arriving * max(policy.target_ms, history[-1].ms) / 1000)
    needed = arriving + waiting / policy.catch_up_s
    wanted = _tasks(costs, needed, fixed, policy)
    if wanted < tasks:
        needed = max(needed, _peak(history, policy))
        wanted = _tasks(costs, needed, fixed, policy)
        if wanted > (1 - policy.change_min) * tasks:
            return None
    chosen = min(policy.tasks_max, max(policy.tasks_min, wanted))
    if chosen == tasks or 0 < chosen - tasks < policy.change_min * tasks:
        return None
    names = [f"level {n}" for n in range(len(costs))]
    rates = {n: TrueRates(r := 1e6 / max(c.row_us, 1e-6), r) for n, c in zip(names, costs, strict=True)}
    levels = tuple(tasks_for(list(itertools.pairwise(["input", *names])), rates, {"input": needed}).values())
    busy = needed * sum(c.row_us for c in costs) / 1e6
    reason = (
        f"{arriving:.0f} rows/s arrive and {waiting:.0f} rows wait: {needed:.0f} rows/s need {busy:.2f} s of "
        f"useful time per second, and tasks should be useful {policy.busy_max:.0%} of the time"
    )
    if wanted > policy.tasks_max:
        reason += f"; {wanted} tasks would be needed, {policy.tasks_max} are allowed"
    return ScalingDecision(tasks, chosen, levels, needed, reason)


def _since(history: Sequence[EpochLoad], begin_us: int) -> Sequence[EpochLoad]:
    """The epochs since a time, but at least the last two."""
    first = next((n for n, load in enumerate(history) if load.at_us >= begin_us), len(history))
    return history[min(first, len(history) - 2) :]


def _peak(history: Sequence[EpochLoad], policy: ScalingPolicy) -> float:
    """The highest rate of arrivals in the time after which tasks may be taken away."""
    end_us, found = history[-1].at_us, 0.0
    recent = [load for load in history if load.at_us >= end_us - policy.hold_us]
    while len(recent) > 1:
        last = [load for load in recent if load.at_us >= recent[-1].at_us - policy.recent_us]
        if len(last) > 1:
            found = max(found, arrivals_per_s(last))
        recent = recent[: len(recent) - max(1, len(last) - 1)]
    return found


def _fixed_share(history: Sequence[EpochLoad], target_ms: int) -> float:
    """The share of an epoch of the target duration in which no task works: planning, shuffle, commit."""
    fixed_ms = median(max(0.0, load.ms - _slowest_ms(load)) for load in history)
    return min(0.5, fixed_ms / target_ms)


def _slowest_ms(load: EpochLoad) -> float:
    return sum(us / max(1, n) for us, n in zip(load.useful_us, load.tasks, strict=True)) / 1000


def _tasks(costs: Sequence[LevelCost], needed: float, fixed_share: float, policy: ScalingPolicy) -> int:
    """The levels of an epoch run one after the other on the same tasks, so their useful times add up."""
    useful = needed * sum(c.row_us for c in costs) / 1e6  # seconds of useful time for each second
    return max(1, _ceil(useful / (policy.busy_max * (1 - fixed_share))))
