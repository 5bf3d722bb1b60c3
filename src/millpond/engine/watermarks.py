"""Watermarks of an epoch: observed at a step, merged along the chain.

The state of a watermark is ``{"max": us, "bound": us}``.  Merging takes the
maximum, so the order in which tasks are heard does not matter (law 3), and a
bound never falls (law 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.plan.nodes import Node, Plan

Marks = dict[str, Any]


def bound(marks: Mapping[str, Any], step: str) -> int | None:
    state = marks.get(step)
    return None if state is None else state["bound"]


def observe(marks: Marks, node: Node, out: pa.Table) -> None:
    operator: Any = node.operator
    newest = operator.observe(out)
    if newest is not None:
        merge(marks, {node.step: {"max": int(newest), "bound": int(newest) - int(operator.delay_us)}})


def reach(marks: Marks, plan: Plan, scan: str, at_us: int) -> None:
    """A source says that no row before this time will come any more: the watermarks it feeds rise to it."""
    fed = {scan}
    for node in plan.topological():
        if fed.isdisjoint(node.inputs):
            continue
        fed.add(node.step)
        if hasattr(node.operator, "observe"):
            merge(marks, {node.step: {"max": at_us, "bound": at_us}})


def merge(marks: Marks, others: Mapping[str, Any]) -> None:
    for step, state in others.items():
        mine = marks.get(step)
        if mine is None or state["max"] > mine["max"]:
            kept = state["bound"] if mine is None else max(state["bound"], mine["bound"])
            marks[step] = {"max": state["max"], "bound": kept}
        elif state["bound"] > mine["bound"]:
            marks[step] = {"max": mine["max"], "bound": state["bound"]}
