"""Parts of a plan that tasks can run apart: some of the views each, and all that leads to them.

Law: what a step gives is a function of its input and its state (law 3).  So the steps that lead from a source
to many views (its scan, filters, a table's own rows) may be run by every part that reads them: they give all
of them the same, and one part keeps what they write and count.  Every other step is in one part, with its
tables.  Parts need nothing of each other, so an epoch of few rows and many views takes as many processors as
there are.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pyarrow as pa

from millpond.operators.alike import Member
from millpond.operators.bag import Bag
from millpond.operators.filter import Filter
from millpond.operators.map import Map
from millpond.operators.scan import Scan
from millpond.operators.upsert import Upsert
from millpond.operators.watermark import Watermark
from millpond.plan.levels import Levels
from millpond.plan.nodes import Node, Plan

TABLE_WEIGHT = 4  # what a step costs that looks into state and writes, when one that computes costs one
WIDE_WEIGHT = 2  # and what a column of its key costs that is no number
SHARE_MAX = 0.8  # of all the work: where a part has more, it is not worth another task


@dataclass(frozen=True)
class Part:
    steps: frozenset[str]
    keeps: frozenset[str]  # the steps whose state, counts and errors it writes: every step of one part alone

    def of(self, levels: Levels) -> Levels:
        """The levels with this part's steps only."""
        return replace(
            levels, steps=tuple(tuple(s for s in steps if s in self.steps) for steps in levels.steps)
        )


def parts(plan: Plan, count: int) -> tuple[Part, ...]:
    """At most `count` parts of about the same weight; one where the plan does not fall apart."""
    whole = (Part(frozenset(plan.nodes), frozenset(plan.nodes)),)
    if count < 2:
        return whole
    members: list[set[str]] = [set() for _ in range(count)]
    loads = [0] * count
    for piece in _pieces(plan, count):
        lightest = loads.index(min(loads))
        members[lightest] |= piece
        loads[lightest] += _cost(plan, piece)
    found = [_ancestors(plan, steps) for steps in members if steps]
    heaviest = max((_cost(plan, steps) for steps in found), default=0)
    if len(found) < 2 or heaviest > SHARE_MAX * _cost(plan, set(plan.nodes)):
        return whole
    kept: set[str] = set()
    made = []
    for steps in found:
        made.append(Part(frozenset(steps), frozenset(steps - kept)))
        kept |= steps
    return tuple(made)


def _cost(plan: Plan, steps: set[str]) -> int:
    return sum(_weight(plan.nodes[step]) for step in steps)


def _weight(node: Node) -> int:
    """About what a step costs in an epoch of few rows: what it computes, looks up and writes, texts more."""
    tables = node.binding.tables
    wide = [k for t in tables for k in t.key if not pa.types.is_primitive(t.schema.field(k).type)]
    return 1 + TABLE_WEIGHT * len(tables) + WIDE_WEIGHT * len(wide)


def _pieces(plan: Plan, count: int) -> list[set[str]]:
    """What is dealt to parts, the heaviest first: groups of one shape together, as they share their work."""
    shapes: dict[str, list[set[str]]] = {}
    for group in _groups(plan):
        shapes.setdefault(_shape(plan, group), []).append(group)
    total = sum(_cost(plan, group) for groups in shapes.values() for group in groups)
    found = []
    for _, groups in sorted(shapes.items()):
        # Of one shape there may be so many that they are a part of their own, and more.
        cuts = min(len(groups), -(-2 * count * sum(_cost(plan, g) for g in groups) // total))
        edges = [len(groups) * n // cuts for n in range(cuts + 1)]
        found += [set[str]().union(*groups[lo:hi]) for lo, hi in itertools.pairwise(edges)]
    return sorted(found, key=lambda piece: _cost(plan, piece), reverse=True)


def _groups(plan: Plan) -> list[set[str]]:
    """The steps that must be in one part with each other, without those that any part may run."""
    shared = _shared(plan)
    readers = plan.consumers()
    group: dict[str, set[str]] = {}
    for node in plan.topological():
        if node.step in shared and readers[node.step]:
            continue
        mine = {node.step}
        for source in node.inputs:
            if source in group and group[source] is not mine:
                mine |= group[source]
        for step in mine:
            group[step] = mine
    return list({id(steps): steps for steps in group.values()}.values())


def _shape(plan: Plan, steps: set[str]) -> str:
    """What is alike in groups that share work: what they are computed of, how, and how their rows lie."""
    told = []
    for step in steps:
        node = plan.nodes[step]
        member = Member.of(node.operator, node.binding)
        like = None if member is None else member.likeness(plan.shape(node.inputs[0]).schema)
        kind = type(node.operator).__name__ if like is None else like
        told.append(f"{kind} {[p.kind for p in node.binding.placements]}")
    scans = [s for s in _ancestors(plan, steps) if isinstance(plan.nodes[s].operator, Scan)]
    return " ".join([*sorted(scans), *sorted(told)])


def _shared(plan: Plan) -> set[str]:
    """The steps near sources whose work may be done again: it is little, and always gives the same."""
    found: set[str] = set()
    for node in plan.topological():
        if _repeats(node) and all(source in found for source in node.inputs):
            found.add(node.step)
    return found


def _repeats(node: Node) -> bool:
    if isinstance(node.operator, Filter | Map):
        return not node.operator.functions  # code of users may ask the world
    return isinstance(node.operator, Scan | Upsert | Bag | Watermark)


def _ancestors(plan: Plan, steps: set[str]) -> set[str]:
    """Steps with all that leads to them."""
    found = set(steps)
    waiting = list(steps)
    while waiting:
        more = [source for source in plan.nodes[waiting.pop()].inputs if source not in found]
        found.update(more)
        waiting += more
    return found
