"""The steps of a level that are run together, over the same rows or the same pieces of them.

A query costs about as much for one expression as for many, so a hundred views over
one source ask once.  What is run together follows from the plan alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.engine.encoded import unread_texts
from millpond.engine.pieces import behind_scans
from millpond.operators.alike import Member
from millpond.operators.filter import Filter
from millpond.operators.map import Map
from millpond.plan.levels import Levels
from millpond.plan.nodes import Node, Plan


@dataclass(frozen=True)
class InOrderSteps:
    """Filters of the same rows, several of which are grouped by the same columns; see `engine.in_order`."""

    keys: dict[str, tuple[str, ...]]  # by filter
    carrying: frozenset[str]  # the filters, and projections between them and who groups


@dataclass(frozen=True)
class Together:
    filters: dict[str, tuple[str, ...]]  # by the step they read: two or more
    projections: dict[str, tuple[str, ...]]  # those that compute something, likewise
    read: frozenset[str]  # steps whose output another step reads
    behind: dict[str, tuple[str, ...]]  # by scan: steps that take its rows piece by piece
    in_order: InOrderSteps
    alike: dict[str, tuple[str, ...]]  # steps that are computed at once, by each of them
    texts: dict[str, frozenset[str]]  # by scan: those that nobody looks at before they are sent
    picking: frozenset[str]  # filters and projections whose rows only such a step reads: they need no copy


def together(plan: Plan, levels: Levels, level: int) -> Together:
    nodes = [plan.nodes[step] for step in levels.steps[level]]
    read = frozenset(source for node in plan.nodes.values() for source in node.inputs)
    projections = [n for n in nodes if _computes(n) and (n.step, 0) not in levels.origins]
    filters = _several([n for n in nodes if _asks(n)])
    behind = behind_scans(plan, levels, level)
    alike = [_alike(plan, levels, place, read) for place in range(levels.count)]
    return Together(
        filters,
        _several(projections),
        read,
        behind,
        _in_order(plan, filters),
        alike[level],
        {scan: unread_texts(plan, levels, scan, steps) for scan, steps in behind.items()},
        _picking(plan, levels, filters, {step for steps in alike for step in steps}),
    )


def _picking(
    plan: Plan, levels: Levels, filters: Mapping[str, tuple[str, ...]], alike: set[str]
) -> frozenset[str]:
    readers = plan.consumers()
    found: set[str] = set()
    for step in (step for steps in filters.values() for step in steps):
        way: list[str] = []
        while len(readers[step]) == 1 and (step, 0) not in levels.origins:
            way.append(step)
            step = readers[step][0][0]
            if step in alike:
                found.update(way)
                break
            if not _passes(plan.nodes[step]) or levels.level_of[step] != levels.level_of[way[0]]:
                break
    return frozenset(found)


def _passes(node: Node) -> bool:
    """Is it a projection that only names columns anew?"""
    plain = isinstance(node.operator, Map) and not node.operator.functions and not node.reads
    return plain and all(bound.column is not None for _, bound in node.binding.extra)


def _alike(plan: Plan, levels: Levels, level: int, read: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Steps of a level that are computed at once: nobody reads them, and they read levels before theirs."""
    found: dict[Any, list[str]] = {}
    for node in (plan.nodes[step] for step in levels.steps[level] if step not in read):
        if not all(levels.level_of[source] < level for source in node.inputs):
            continue
        member = Member.of(node.operator, node.binding)
        likeness = None if member is None else member.likeness(plan.shape(node.inputs[0]).schema)
        if likeness is not None and not node.reads:
            found.setdefault(likeness, []).append(node.step)
    return {step: tuple(steps) for steps in found.values() if len(steps) > 1 for step in steps}


def _in_order(plan: Plan, filters: Mapping[str, tuple[str, ...]]) -> InOrderSteps:
    readers: dict[str, list[tuple[Node, int]]] = {}
    for node in plan.nodes.values():
        for index, source in enumerate(node.inputs):
            readers.setdefault(source, []).append((node, index))
    keys: dict[str, tuple[str, ...]] = {}
    carrying: set[str] = set()
    for steps in filters.values():
        found = {step: _grouped_by(readers, step) for step in steps}
        counts = Counter(key for key, _ in found.values())
        for step, (key, way) in found.items():
            if key and counts[key] > 1:
                keys[step] = key
                carrying.update(way)
    return InOrderSteps(keys, frozenset(carrying))


def _grouped_by(
    readers: Mapping[str, Sequence[tuple[Node, int]]], step: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of a step by which its only reader groups its rows, and the steps that carry them there."""
    if len(readers.get(step, ())) != 1:
        return (), ()
    ((node, index),) = readers[step]
    if node.reads:
        return (), ()
    if isinstance(node.operator, Map) and not node.operator.functions:
        key, way = _grouped_by(readers, node.step)
        passed = {name: bound.column for name, bound in node.binding.extra if bound.column is not None}
        return (tuple(passed[k] for k in key), (step, *way)) if all(k in passed for k in key) else ((), ())
    placement = node.binding.placements[index]
    takes = placement.kind == "hash" and getattr(node.operator, "takes_in_order", False)
    return (placement.key, (step,)) if takes else ((), ())


def _asks(node: Node) -> bool:
    """Is it a filter with a condition of its own?"""
    plain = isinstance(node.operator, Filter) and not node.operator.functions
    return plain and node.binding.extra.column is None


def _computes(node: Node) -> bool:
    """Is it a projection with something to compute, over the columns that its input has today?"""
    plain = isinstance(node.operator, Map) and not node.operator.functions and not node.reads
    return plain and any(bound.column is None for _, bound in node.binding.extra)


def _several(nodes: list[Node]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        found[node.inputs[0]] = (*found.get(node.inputs[0], ()), node.step)
    return {source: steps for source, steps in found.items() if len(steps) > 1}
