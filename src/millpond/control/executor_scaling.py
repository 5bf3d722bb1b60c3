"""Decides how many Spark executors the tasks of an epoch need.

Tasks are free and follow the load at once (`control/scaling.py`); an executor takes seconds to come and costs
money while it is there.  So executors follow tasks: they are asked for as soon as tasks have no core, and
given back when no epoch of the last minutes had a task for them.

Law: a pure function of the tasks of the epochs and of what was decided before.  The bounds always hold, so
`executors_max` is the limit of the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ExecutorPolicy:
    executors_min: int
    executors_max: int
    cores: int  # of one executor
    cool_down_us: int  # from the last change to the next one that gives executors back


@dataclass(frozen=True)
class ExecutorDecision:
    before: int
    executors: int
    reason: str


def decide_executors(
    tasks: Sequence[tuple[int, int]], executors: int, changed_us: int | None, policy: ExecutorPolicy
) -> ExecutorDecision | None:
    """Return the change of executors that the tasks need; None if they need none, or it is too early.

    `tasks` has a pair for each epoch, oldest first: its time, and the number of tasks that it should have.
    `executors` is the number that was last requested.

    >>> policy = ExecutorPolicy(1, 4, 2, 30_000_000)
    >>> decide_executors([(0, 7)], 1, None, policy).executors
    4
    >>> decide_executors([(0, 7), (9_000_000, 2)], 4, 0, policy) is None
    True
    >>> decide_executors([(0, 7), (9_000_000, 2), (40_000_000, 2)], 4, 0, policy).executors
    1
    """
    now_us, now_tasks = tasks[-1]
    wanted = _bounded(now_tasks, policy)
    if wanted > executors:
        reason = f"{now_tasks} tasks need {_needed(now_tasks, policy)} executors of {_cores(policy)}"
        if _needed(now_tasks, policy) > policy.executors_max:
            reason += f"; {policy.executors_max} are allowed"
        return ExecutorDecision(executors, wanted, reason)
    begin_us = now_us - policy.cool_down_us
    if changed_us is not None and changed_us > begin_us:
        return None
    most = max(count for at_us, count in tasks if at_us >= begin_us)
    wanted = _bounded(most, policy)
    if wanted >= executors:
        return None
    seconds = policy.cool_down_us / 1e6
    reason = f"no epoch of {seconds:g} s had more than {most} tasks; executors have {_cores(policy)}"
    return ExecutorDecision(executors, wanted, reason)


def _needed(tasks: int, policy: ExecutorPolicy) -> int:
    return -(-tasks // policy.cores)


def _bounded(tasks: int, policy: ExecutorPolicy) -> int:
    return min(policy.executors_max, max(policy.executors_min, _needed(tasks, policy)))


def _cores(policy: ExecutorPolicy) -> str:
    return f"{policy.cores} core{'s' if policy.cores > 1 else ''}"
