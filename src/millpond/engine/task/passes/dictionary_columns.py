"""Keeps text of a fused scan dictionary-encoded, as in its file, if no step reads it before it is sent.

Law: a step that reads values gets plain text.  A column stays encoded only across steps that declare the
columns they read and do not read this one; a receiver gets it plain (`engine.task.wire`).

A repeated text is then sent as a number, and is neither built nor copied for each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from millpond.engine.task.items.fused_scan import FusedScan
from millpond.engine.task.task_plan import TaskPlan
from millpond.operators.scan import Scan
from millpond.operators.source_traits import ReadsEncoded
from millpond.operators.traits import NamesColumnsRead, RenamesColumns
from millpond.plan.levels import Levels
from millpond.plan.nodes import Node, Plan


def dictionary_columns(tasks: TaskPlan) -> TaskPlan:
    items = tuple(
        replace(item, encoded=unread_texts(tasks.plan, tasks.levels, item.scan.step, item.steps[1:]))
        if isinstance(item, FusedScan)
        else item
        for item in tasks.items
    )
    return tasks if items == tasks.items else replace(tasks, items=items)


def unread_texts(plan: Plan, levels: Levels, scan: str, behind: tuple[str, ...]) -> frozenset[str]:
    """The text columns of a scan that no step reads before they are sent.

    `behind` are the steps that process the rows of the scan batch by batch.
    """
    operator = plan.nodes[scan].operator
    if not isinstance(operator, Scan) or not isinstance(operator.source, ReadsEncoded):
        return frozenset()
    texts = {field.name for field in plan.shape(scan).schema if field.type == pa.string()}
    called = {scan: {name: name for name in texts}}  # by step: its name for a text column -> the scan's name
    shown = {view.step for view in plan.views.values()}
    readers = plan.consumers()
    for step in (scan, *behind):
        if step in shown:
            return frozenset()
        for reader, index in readers[step]:
            node, here = plan.nodes[reader], reader in behind
            seen = _seen(node, index, sent=not here)
            if seen is None or (not here and levels.level_of[reader] == levels.level_of[step]):
                return frozenset()
            texts -= {text for name, text in called[step].items() if name in seen}
            if here:
                called[reader] = _called_behind(node, called[step])
    return frozenset(texts)


def _seen(node: Node, index: int, *, sent: bool) -> frozenset[str] | None:
    """The columns that a step reads before an exchange, or at all if it has none; None if it may read any."""
    operator = node.operator
    if not isinstance(operator, NamesColumnsRead) or node.reads:
        return None
    if sent and node.binding.placements[index].kind != "hash":
        return None
    return operator.looks_at(node.binding, index)


def _called_behind(node: Node, called: Mapping[str, str]) -> dict[str, str]:
    operator = node.operator
    if not isinstance(operator, RenamesColumns):
        return dict(called)
    return {name: called[old] for name, old in operator.passes(node.binding).items() if old in called}
