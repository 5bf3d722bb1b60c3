"""The steps of a level that are run together, over the same rows or the same pieces of them.

A query costs about as much for one expression as for many, so a hundred views over
one source ask once.  What is run together follows from the plan alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.engine.pieces import behind_scans
from millpond.operators.filter import Filter
from millpond.operators.map import Map
from millpond.plan.levels import Levels
from millpond.plan.nodes import Node, Plan


@dataclass(frozen=True)
class Together:
    filters: dict[str, tuple[str, ...]]  # by the step they read: two or more
    projections: dict[str, tuple[str, ...]]  # those that compute something, likewise
    read: frozenset[str]  # steps whose output another step reads
    behind: dict[str, tuple[str, ...]]  # by scan: steps that take its rows piece by piece


def together(plan: Plan, levels: Levels, level: int) -> Together:
    nodes = [plan.nodes[step] for step in levels.steps[level]]
    read = frozenset(source for node in plan.nodes.values() for source in node.inputs)
    projections = [n for n in nodes if _computes(n) and (n.step, 0) not in levels.origins]
    behind = behind_scans(plan, levels, level)
    return Together(_several([n for n in nodes if _asks(n)]), _several(projections), read, behind)


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
