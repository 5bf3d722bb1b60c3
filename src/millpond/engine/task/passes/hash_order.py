"""Sorts rows once by key hash for shared filters whose readers group by the same key.

Law: a filter keeps the same multiset in any order.  Its only reader groups by the key, so rows that arrive
with their hashes, sorted by them, are grouped already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from millpond.engine.task.items.shared_filters import SharedFilters
from millpond.engine.task.task_plan import Item, TaskPlan
from millpond.operators.map import Map
from millpond.operators.traits import UsesHashOrder
from millpond.plan.nodes import Node

Readers = Mapping[str, Sequence[tuple[str, int]]]


def hash_order(tasks: TaskPlan) -> TaskPlan:
    readers = tasks.plan.consumers()
    keeps_hash: set[str] = set()
    items: list[Item] = []
    for item in tasks.items:
        if isinstance(item, SharedFilters):
            grouped = {step: _grouped_by(tasks, readers, step) for step in item.filters}
            counts = Counter(key for key, _ in grouped.values())
            keys = {step: key for step, (key, _) in grouped.items() if key and counts[key] > 1}
            keeps_hash.update(carrier for step in keys for carrier in grouped[step][1])
            item = replace(item, hash_keys=tuple(keys.items()))
        items.append(item)
    if not keeps_hash:
        return tasks
    return replace(tasks, items=tuple(items), keeps_hash=frozenset(keeps_hash))


def _grouped_by(tasks: TaskPlan, readers: Readers, step: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of a step by which its only reader groups, and the steps that pass the hashes on."""
    if len(readers[step]) != 1:
        return (), ()
    ((reader, index),) = readers[step]
    node: Node = tasks.plan.nodes[reader]
    if node.reads:
        return (), ()
    if isinstance(node.operator, Map) and not node.operator.functions:
        key, carriers = _grouped_by(tasks, readers, node.step)
        passed = {name: bound.column for name, bound in node.binding.extra if bound.column is not None}
        if not all(k in passed for k in key):
            return (), ()
        return tuple(passed[k] for k in key), (step, *carriers)
    placement = node.binding.placements[index]
    takes = placement.kind == "hash" and isinstance(node.operator, UsesHashOrder)
    return (placement.key, (step,)) if takes else ((), ())
