"""The watermarks of an epoch: what tasks observe, and what follows from it for the next epoch.

Tasks report what they *observed*, by step, task, source and partition; hearing it twice changes nothing.
`settled_watermarks` computes the next state from the last one, these and the arrivals of the epoch.
Law: neither depends on which task read which rows (law 3).

In a backfill rows come in no order of time: tasks report states with one newest time for each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.kernels.watermark_strategies import Bounded, Strategy, Summary, delays, quantile_us, summed
from millpond.operators.traits import SetsWatermark
from millpond.plan.nodes import Plan
from millpond.plan.watermark_steps import WatermarkSteps

WatermarkStates = dict[str, Any]  # by step: its state
Observed = dict[str, dict[str, dict[str, dict[str, Any]]]]  # by step, task, scan and partition

ANY = ""  # stands for the scan and the partition of rows that cannot be traced


def bound(states: Mapping[str, Any], step: str) -> int | None:
    state = states.get(step)
    return None if state is None else state["bound"]


def bounds(states: Mapping[str, Any]) -> dict[str, int]:
    return {step: state["bound"] for step, state in states.items() if state["bound"] is not None}


def bound_at(states: Mapping[str, Any], step: str, share: float) -> int | None:
    """The watermark if only this share of the rows must have come: by the delays that were learnt."""
    state = states.get(step)
    if state is None:
        return None
    learnt = state.get("delays")
    if learnt is None or state["max"] is None:
        return most([state["bound"]])
    return most([state["bound"], state["max"] - quantile_us(summed(learnt["now"], learnt["before"]), share)])


# -- observing ---------------------------------------------------------------------------


def observe(
    observed: Observed,
    task: str,
    step: str,
    operator: SetsWatermark,
    rows: pa.Table,
    where: tuple[str, str],
    before: Mapping[str, Any],
    late: bool = False,
) -> None:
    """Add rows of one partition that reached a watermark step; `before` are the states of the last epoch.

    With `late` some of them may be behind the watermark: then these are counted.

    If the step learns delays, the rows are those of one split, in order, or of an untraced step.
    """
    rule, limit = operator.rule, bound(before, step)
    if late and limit is not None and where != (ANY, ANY):
        count = int(np.count_nonzero(operator.times(rows) < limit))
        if count:
            add(observed, task, step, rule, where, {"max": None, "late": count})
    if isinstance(rule, Bounded) and not operator.learns:
        newest = operator.observe(rows)
        if newest is not None:
            add(observed, task, step, rule, where, {"max": int(newest)})
        return
    times = operator.times(rows)
    if not len(times):
        return
    seen = rule.summary(times)
    if operator.learns or rule.learns:
        known = _newest_before(before, step, where)
        newest_yet = times if where == (ANY, ANY) else np.maximum.accumulate(times)
        seen["delays"] = delays((newest_yet if known is None else np.maximum(newest_yet, known)) - times)
    add(observed, task, step, rule, where, seen)


def _newest_before(states: Mapping[str, Any], step: str, where: tuple[str, str]) -> int | None:
    entry = entry_of(states, step, where)
    return None if entry is None else entry.get("max")


def entry_of(states: Mapping[str, Any], step: str, where: tuple[str, str]) -> Summary | None:
    """What is known of one partition."""
    side = states.get(step, {}).get("scans", {}).get(where[0], {})
    entry: Summary | None = side.get("parts", {}).get(where[1])
    return entry


def reach(observed: Observed, task: str, steps: WatermarkSteps, scan: str, part: str, at_us: int) -> None:
    """Record that a partition will send no more rows before this time."""
    for each in steps.fed_by(scan):
        where = (scan, part) if each.by_partition else (ANY, ANY)
        add(observed, task, each.step, each.operator.rule, where, {"max": int(at_us), "reach": int(at_us)})


def add(
    observed: Observed, task: str, step: str, rule: Strategy, where: tuple[str, str], seen: Summary
) -> None:
    scan, part = where
    parts = observed.setdefault(step, {}).setdefault(task, {}).setdefault(scan, {})
    parts[part] = dict(seen) if part not in parts else joined(rule, parts[part], seen)


def joined(rule: Strategy, one: Summary, other: Summary) -> dict[str, Any]:
    summary = rule.joined(one, other)
    if "delays" in one or "delays" in other:
        summary["delays"] = summed(one.get("delays", {}), other.get("delays", {}))
    if late := one.get("late", 0) + other.get("late", 0):
        summary["late"] = late
    return summary


def hear(observed: Observed, others: Mapping[str, Any]) -> None:
    """Add what other tasks observed; what is known already stays as it is."""
    for step, tasks in others.items():
        mine = observed.setdefault(step, {})
        for task, seen in tasks.items():
            mine.setdefault(task, seen)


def most(values: Iterable[int | None]) -> int | None:
    return max((v for v in values if v is not None), default=None)


# -- backfills: one maximum for each step --------------------------------------------------


def observe_newest(states: WatermarkStates, step: str, operator: SetsWatermark, rows: pa.Table) -> None:
    """In a backfill rows come in no order of time, and only the newest time of a step counts."""
    if operator.follows is not None:
        return  # the next epoch takes the watermark over
    newest = operator.observe(rows)
    if newest is not None:
        merge(states, {step: {"max": int(newest), "bound": int(newest) - int(operator.delay_us)}})


def reach_newest(states: WatermarkStates, plan: Plan, scan: str, at_us: int) -> None:
    """`reach` in a backfill."""
    fed = {scan}
    for node in plan.topological():
        if fed.isdisjoint(node.inputs):
            continue
        fed.add(node.step)
        if isinstance(node.operator, SetsWatermark):
            merge(states, {node.step: {"max": at_us, "bound": at_us}})


def merge(states: WatermarkStates, others: Mapping[str, Any]) -> None:
    """Raise the newest times and the bounds of states."""
    for step, state in others.items():
        mine = states.get(step)
        if mine is None:
            states[step] = state
        else:
            states[step] = {**mine, **{n: most([mine[n], state[n]]) for n in ("max", "bound")}}
