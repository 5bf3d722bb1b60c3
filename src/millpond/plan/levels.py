"""Cuts a plan into levels: one linear chain of stages, however many views it has.

A node that needs its input partitioned by a key puts an exchange (a shuffle) on that edge, unless the rows
are already partitioned that way.
The level of a node is the number of exchanges on the longest path to it; it is also behind the watermarks
that the node hears.
A task of level k runs every node of that level, for all views, for its range of key hashes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from millpond.delta import ORIGIN
from millpond.operators.operator import HERE, Placement
from millpond.operators.traits import FiresByTime, PreparesInput
from millpond.plan.local_lookup import NO_LOCAL_LOOKUPS, LocalLookups
from millpond.plan.nodes import Node, Plan, upstream
from millpond.plan.prune import needs
from millpond.plan.skipped_steps import skipped_steps
from millpond.plan.watermark_steps import WatermarkSteps, watermark_steps

EdgeKind = Literal["hash", "broadcast", "forward"]


@dataclass(frozen=True)
class Edge:
    """An exchange: rows of one producer that go to consumers of a later level."""

    id: int
    producer: str
    consumers: tuple[tuple[str, int], ...]
    kind: EdgeKind
    key: tuple[str, ...]
    columns: tuple[str, ...]
    prepared_by: str | None  # the consumer step that reduces rows before they are sent
    from_level: int
    to_level: int


@dataclass(frozen=True)
class Levels:
    level_of: dict[str, int]
    steps: tuple[tuple[str, ...], ...]  # by level, inputs first, without those that are `skipped_steps`
    edges: tuple[Edge, ...]
    columns: dict[str, tuple[str, ...]]  # the output columns that each step must produce
    with_origin: frozenset[str] = frozenset()  # the steps whose rows carry their origin
    origins: frozenset[tuple[str, int]] = frozenset()  # the inputs (step, index) that need it
    inputs: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)  # columns of each input
    full_rows_for: dict[str, tuple[str, ...]] = field(default_factory=dict)  # see `plan.prune`
    local_lookups: LocalLookups = NO_LOCAL_LOOKUPS
    watermarks: WatermarkSteps = field(default_factory=WatermarkSteps)

    @property
    def count(self) -> int:
        return len(self.steps)


class _Way(NamedTuple):
    """Two exchanges with equal values are sent as one."""

    producer: str
    kind: EdgeKind
    key: tuple[str, ...]
    from_level: int
    to_level: int
    prepared: tuple[str, int] | None  # the input for which a consumer reduces the rows


def placements(node: Node, local_lookups: LocalLookups) -> tuple[Placement, ...]:
    """Where the inputs of a step must be; those of a local lookup are where they are."""
    return (HERE, HERE) if node.step in local_lookups.lookups else node.binding.placements


def cut(plan: Plan, full_rows: bool = False, local_lookups: LocalLookups = NO_LOCAL_LOOKUPS) -> Levels:
    watermarks = watermark_steps(plan)
    level_of = _levels(plan, local_lookups, watermarks)
    local: dict[tuple[str, int], bool] = {}
    for node in plan.topological():
        for index, placement in enumerate(placements(node, local_lookups)):
            source = node.inputs[index]
            same = level_of[source] == level_of[node.step]
            # Of the right side of a local lookup nothing comes that is not there.
            known = index == 1 and node.step in local_lookups.lookups
            local[(node.step, index)] = known or (same and _is_placed(plan, source, placement))

    asked = needs(plan, full_rows)
    needed = asked.columns
    columns = {
        step: tuple(n for n in node.binding.shape.schema.names if n in needed[step])
        for step, node in plan.nodes.items()
    }
    # Consumers that need the same rows partitioned in the same way share one edge.
    merged: dict[_Way, list[tuple[str, int]]] = {}
    skipped = skipped_steps(plan)
    for node in (node for node in plan.topological() if node.step not in skipped):
        for index, (source, placement) in enumerate(
            zip(node.inputs, placements(node, local_lookups), strict=True)
        ):
            if local[(node.step, index)]:
                continue
            prepared = (node.step, index) if isinstance(node.operator, PreparesInput) else None
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
    # Lookups that are local_lookups take rows as they are read, and must know before what they look up.
    order = sorted(
        (node.step for node in plan.topological() if node.step not in skipped),
        key=lambda step: step not in local_lookups.shared,
    )
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
        asked.full_rows_for,
        local_lookups,
        watermarks,
    )


def with_unheard(plan: Plan) -> WatermarkSteps:
    """The watermark steps, with those of which steps that wait for them hear in the next epoch."""
    watermarks = watermark_steps(plan)
    waits = _waits(plan, watermarks)
    level_of = _levels(plan, NO_LOCAL_LOOKUPS, watermarks) if waits else {}
    late = [(step, mark) for step, mark in waits if level_of[step] <= level_of[mark]]
    return replace(watermarks, unheard=tuple((mark, watermarks.heard_by[step]) for step, mark in late))


def _levels(plan: Plan, local_lookups: LocalLookups, watermarks: WatermarkSteps) -> dict[str, int]:
    """The level of each step: behind its exchanges, and behind the watermarks that it waits for.

    Tasks hear what earlier levels observed.  While a watermark is idle it follows others, which may be set
    in later levels than the windows that it closes; these would close an epoch late (law 1).
    """
    levels = first = _behind_exchanges(plan, local_lookups, {})
    waits = _waits(plan, watermarks)
    least: dict[str, int] = {}
    for _ in range(len(watermarks.steps) + 1):
        early = [(step, mark) for step, mark in waits if levels[step] <= levels[mark]]
        early = [(step, mark) for step, mark in early if step not in upstream(plan, [mark])]
        if not early:
            return levels
        for step, mark in early:
            least[step] = max(least.get(step, 0), levels[mark] + 1)
        levels = _behind_exchanges(plan, local_lookups, least)
    return first  # steps that wait for each other hear each other in the next epoch


def _waits(plan: Plan, watermarks: WatermarkSteps) -> list[tuple[str, str]]:
    """The steps that do something when time passes, each with a watermark that may move its time."""
    return [
        (node.step, mark)
        for node in plan.nodes.values()
        if isinstance(node.operator, FiresByTime)
        for mark in watermarks.heard_by.get(node.step, ())
    ]


def _behind_exchanges(plan: Plan, local_lookups: LocalLookups, least: Mapping[str, int]) -> dict[str, int]:
    """The number of exchanges on the longest path to each step, and at least so many."""
    levels: dict[str, int] = {}
    for node in plan.topological():
        level = least.get(node.step, 0)
        placed = list(zip(node.inputs, placements(node, local_lookups), strict=True))
        if node.step in local_lookups.lookups:
            del placed[1]
        for source, placement in placed:
            level = max(level, levels[source] + (0 if _is_placed(plan, source, placement) else 1))
        levels[node.step] = level
    return levels


def _carried(columns: tuple[str, ...], reads: Sequence[frozenset[str]]) -> tuple[str, ...]:
    """The columns that are sent: those that a consumer reads, or one if only the number of rows matters.

    >>> _carried(("a", "b", "c"), [frozenset("c"), frozenset("a")]), _carried(("a", "b"), [frozenset()])
    (('a', 'c'), ('a',))
    """
    return tuple(c for c in columns if any(c in read for read in reads)) or columns[:1]


def _is_placed(plan: Plan, source: str, placement: Placement) -> bool:
    """Are the rows of `source` already partitioned as `placement` requires?"""
    if placement.kind == "here":
        return True
    return placement.kind == "hash" and plan.nodes[source].binding.placed_by == placement.key
