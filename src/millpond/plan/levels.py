"""Levels: a plan as one linear chain, however many views it has.

A node that needs its input placed by a key puts an exchange on that edge,
unless the rows already lie that way.  The level of a node is the number of
exchanges on the longest path to it; a task of level k runs every node of that
level, for all views, for its hash range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millpond.operators.operator import Placement
from millpond.plan.nodes import Plan
from millpond.plan.prune import needed_columns


@dataclass(frozen=True)
class Edge:
    """Rows of one producer on their way to consumers of a later level."""

    id: int
    producer: str
    consumers: tuple[tuple[str, int], ...]
    kind: Literal["hash", "broadcast", "forward"]
    key: tuple[str, ...]
    columns: tuple[str, ...]
    prepared_by: str | None  # the consumer step that shrinks rows before they travel
    from_level: int
    to_level: int


@dataclass(frozen=True)
class Levels:
    level_of: dict[str, int]
    steps: tuple[tuple[str, ...], ...]  # by level, inputs first
    edges: tuple[Edge, ...]
    columns: dict[str, tuple[str, ...]]  # what each step must give

    @property
    def count(self) -> int:
        return len(self.steps)


def cut(plan: Plan) -> Levels:
    level_of: dict[str, int] = {}
    local: dict[tuple[str, int], bool] = {}
    for node in plan.topological():
        level = 0
        for source, placement in zip(node.inputs, node.binding.placements, strict=True):
            lies = _lies(plan, source, placement)
            level = max(level, level_of[source] + (0 if lies else 1))
        level_of[node.step] = level
        for index, (source, placement) in enumerate(zip(node.inputs, node.binding.placements, strict=True)):
            local[(node.step, index)] = _lies(plan, source, placement) and level_of[source] == level

    needed = needed_columns(plan)
    columns = {
        step: tuple(n for n in node.binding.shape.schema.names if n in needed[step])
        for step, node in plan.nodes.items()
    }
    merged: dict[tuple[object, ...], list[tuple[str, int]]] = {}
    for node in plan.topological():
        for index, (source, placement) in enumerate(zip(node.inputs, node.binding.placements, strict=True)):
            if local[(node.step, index)]:
                continue
            prepared_by = node.step if hasattr(node.operator, "prepare") else None
            kind = "forward" if placement.kind == "here" else placement.kind
            prepared = None if prepared_by is None else (prepared_by, index)
            key = (source, kind, placement.key, level_of[source], level_of[node.step], prepared)
            merged.setdefault(key, []).append((node.step, index))
    edges = []
    for number, ((source, kind, key_columns, from_level, to_level, prepared), consumers) in enumerate(
        merged.items()
    ):
        edges.append(
            Edge(
                number,
                source,  # type: ignore[arg-type]
                tuple(consumers),
                kind,  # type: ignore[arg-type]
                key_columns,  # type: ignore[arg-type]
                columns[source],  # type: ignore[index]
                prepared[0] if prepared else None,  # type: ignore[index]
                from_level,  # type: ignore[arg-type]
                to_level,  # type: ignore[arg-type]
            )
        )
    depth = max(level_of.values(), default=0) + 1
    order = [node.step for node in plan.topological()]
    steps = tuple(tuple(s for s in order if level_of[s] == k) for k in range(depth))
    return Levels(level_of, steps, tuple(edges), columns)


def _lies(plan: Plan, source: str, placement: Placement) -> bool:
    """Do the rows of `source` already lie as `placement` wants them?"""
    if placement.kind == "here":
        return True
    return placement.kind == "hash" and plan.nodes[source].binding.placed_by == placement.key
