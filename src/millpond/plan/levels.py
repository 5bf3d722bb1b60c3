"""Levels: a plan as one linear chain, however many views it has.

A node that needs its input placed by a key puts an exchange on that edge,
unless the rows already lie that way.  The level of a node is the number of
exchanges on the longest path to it; a task of level k runs every node of that
level, for all views, for its hash range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from millpond.delta import ORIGIN
from millpond.operators.operator import HERE, Placement
from millpond.plan.near import NOWHERE, Near
from millpond.plan.nodes import Node, Plan
from millpond.plan.prune import needs

EdgeKind = Literal["hash", "broadcast", "forward"]


@dataclass(frozen=True)
class Edge:
    """Rows of one producer on their way to consumers of a later level."""

    id: int
    producer: str
    consumers: tuple[tuple[str, int], ...]
    kind: EdgeKind
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
    with_origin: frozenset[str] = frozenset()  # the steps whose rows bring their origin
    origins: frozenset[tuple[str, int]] = frozenset()  # the inputs (step, index) that asked for it
    inputs: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)  # what each is read for
    whole_for: dict[str, tuple[str, ...]] = field(default_factory=dict)  # see `plan.prune`
    near: Near = NOWHERE

    @property
    def count(self) -> int:
        return len(self.steps)


class _Way(NamedTuple):
    """What makes two exchanges one."""

    producer: str
    kind: EdgeKind
    key: tuple[str, ...]
    from_level: int
    to_level: int
    prepared: tuple[str, int] | None  # the input for which a consumer shrinks the rows


def placements(node: Node, near: Near) -> tuple[Placement, ...]:
    """Where the inputs of a step must be; those of a near lookup are where they are."""
    return (HERE, HERE) if node.step in near.lookups else node.binding.placements


def cut(plan: Plan, whole: bool = False, near: Near = NOWHERE) -> Levels:
    level_of: dict[str, int] = {}
    local: dict[tuple[str, int], bool] = {}
    for node in plan.topological():
        level = 0
        placed = list(zip(node.inputs, placements(node, near), strict=True))
        if node.step in near.lookups:  # of its right side nothing comes that is not there
            local[(node.step, 1)] = True
            del placed[1]
        for source, placement in placed:
            lies = _lies(plan, source, placement)
            level = max(level, level_of[source] + (0 if lies else 1))
        level_of[node.step] = level
        for index, (source, placement) in enumerate(placed):
            local[(node.step, index)] = _lies(plan, source, placement) and level_of[source] == level

    asked = needs(plan, whole)
    needed = asked.columns
    columns = {
        step: tuple(n for n in node.binding.shape.schema.names if n in needed[step])
        for step, node in plan.nodes.items()
    }
    # Consumers that want the same rows in the same way share one edge, which is sent once.
    merged: dict[_Way, list[tuple[str, int]]] = {}
    for node in plan.topological():
        for index, (source, placement) in enumerate(zip(node.inputs, placements(node, near), strict=True)):
            if local[(node.step, index)]:
                continue
            prepared = (node.step, index) if hasattr(node.operator, "prepare") else None
            kind: EdgeKind = "forward" if placement.kind == "here" else placement.kind
            way = _Way(source, kind, placement.key, level_of[source], level_of[node.step], prepared)
            merged.setdefault(way, []).append((node.step, index))
    edges = [
        Edge(
            number,
            way.producer,
            tuple(consumers),
            way.kind,
            way.key,
            _carried(columns[way.producer], [asked.inputs[c] for c in consumers])
            + ((ORIGIN,) if asked.origins.intersection(consumers) else ()),
            way.prepared[0] if way.prepared else None,
            way.from_level,
            way.to_level,
        )
        for number, (way, consumers) in enumerate(merged.items())
    ]
    depth = max(level_of.values(), default=0) + 1
    # Lookups that are near take rows as they are read, and must know before what they look up.
    order = sorted((node.step for node in plan.topological()), key=lambda step: step not in near.shared)
    steps = tuple(tuple(s for s in order if level_of[s] == k) for k in range(depth))
    with_origin = frozenset(step for step, names in needed.items() if ORIGIN in names)
    return Levels(
        level_of,
        steps,
        tuple(edges),
        columns,
        with_origin,
        asked.origins,
        asked.inputs,
        asked.whole_for,
        near,
    )


def _carried(columns: tuple[str, ...], reads: Sequence[frozenset[str]]) -> tuple[str, ...]:
    """The columns that travel: what somebody reads, or one where only the number of rows counts.

    >>> _carried(("a", "b", "c"), [frozenset("c"), frozenset("a")]), _carried(("a", "b"), [frozenset()])
    (('a', 'c'), ('a',))
    """
    return tuple(c for c in columns if any(c in read for read in reads)) or columns[:1]


def _lies(plan: Plan, source: str, placement: Placement) -> bool:
    """Do the rows of `source` already lie as `placement` wants them?"""
    if placement.kind == "here":
        return True
    return placement.kind == "hash" and plan.nodes[source].binding.placed_by == placement.key
