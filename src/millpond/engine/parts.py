"""Parts of a plan that tasks can run apart: some of the views each, and all that leads to them.

Law: what a step gives is a function of its input and its state (law 3).  So the steps that lead from a source
to many views (its scan, filters, a table's own rows) may be run by every part that reads them: they give all
of them the same, and one part keeps what they write and count.  Every other step is in one part, with its
tables.  Parts need nothing of each other, so an epoch of few rows and many views takes as many processors as
there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millpond.operators.bag import Bag
from millpond.operators.filter import Filter
from millpond.operators.map import Map
from millpond.operators.scan import Scan
from millpond.operators.upsert import Upsert
from millpond.operators.watermark import Watermark
from millpond.plan.levels import Levels
from millpond.plan.nodes import Node, Plan

TABLE_WEIGHT = 4  # what a step costs that looks into state and writes, when one that computes costs one
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
    groups = _groups(plan)
    weights = [sum(_weight(plan.nodes[step]) for step in group) for group in groups]
    total = sum(weights)
    # Groups of one shape lie together, since they share more of their work; so they are cut, not dealt.
    members: list[set[str]] = [set() for _ in range(count)]
    before = 0
    for group, weight in zip(groups, weights, strict=True):
        members[(2 * before + weight) * count // (2 * total)] |= group
        before += weight
    found = [_ancestors(plan, steps) for steps in members if steps]
    heaviest = max((sum(_weight(plan.nodes[s]) for s in steps) for steps in found), default=0)
    if len(found) < 2 or heaviest > SHARE_MAX * sum(map(_weight, plan.nodes.values())):
        return whole
    kept: set[str] = set()
    made = []
    for steps in found:
        made.append(Part(frozenset(steps), frozenset(steps - kept)))
        kept |= steps
    return tuple(made)


def _weight(node: Node) -> int:
    return 1 + TABLE_WEIGHT * len(node.binding.tables)


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
    apart = {id(steps): steps for steps in group.values()}
    return sorted(apart.values(), key=lambda steps: _shape(plan, steps))


def _shape(plan: Plan, steps: set[str]) -> list[str]:
    """What is alike in groups that share work: what they read, and how their rows lie."""
    return sorted(
        f"{source} {placement.kind} {placement.key} {type(plan.nodes[step].operator).__name__}"
        for step in steps
        for source, placement in zip(
            plan.nodes[step].inputs, plan.nodes[step].binding.placements, strict=True
        )
        if source not in steps
    )


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
