"""Splits a plan into parts that tasks run independently: each has some of the views and all their ancestors.

Law: the output of a step is a function of its input and its state (law 3).  So the steps between a source and
many views (its scan, filters, a table's own rows) may run in every part that reads them: they give each part
the same rows, and one part writes their state and counts.  Every other step is in one part, with its tables.
A part also has the watermark steps that move the time of its steps, which need not be before them: windows
read from in front of the watermark that closes them.  So it observes the same watermarks as the whole plan.
Parts need nothing from each other, so an epoch with few rows and many views uses all processors.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from millpond import tuning
from millpond.engine.task.similar_aggregates import Member
from millpond.kernels.custom_windows import CustomWindows
from millpond.kernels.watermark_strategies import Custom
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.bag import Bag
from millpond.operators.filter import Filter
from millpond.operators.late_rows import LateRows
from millpond.operators.map import Map
from millpond.operators.scan import Scan
from millpond.operators.upsert import Upsert
from millpond.operators.watermark import Watermark
from millpond.operators.window import Hop, Tumble
from millpond.plan.levels import Levels
from millpond.plan.nodes import Node, Plan, upstream
from millpond.plan.watermark_steps import watermark_steps

Heard = Mapping[str, frozenset[str]]  # by step: the watermark steps that move its time


@dataclass(frozen=True)
class PlanPart:
    steps: frozenset[str]
    keeps: frozenset[str]  # the steps whose state, counts and errors this part writes; no two parts share one

    def of(self, levels: Levels) -> Levels:
        """The levels with only this part's steps."""
        return replace(
            levels,
            steps=tuple(tuple(s for s in steps if s in self.steps) for steps in levels.steps),
            watermarks=levels.watermarks.within(self.steps),
        )


def parts(plan: Plan, count: int) -> tuple[PlanPart, ...]:
    """At most `count` parts of about the same weight; one part if the plan cannot be split well."""
    undivided = (PlanPart(frozenset(plan.nodes), frozenset(plan.nodes)),)
    if count < 2:
        return undivided
    members: list[set[str]] = [set() for _ in range(count)]
    loads = [0] * count
    heard_by = watermark_steps(plan).heard_by
    for steps_of_part in _pieces(plan, heard_by, count):
        lightest = loads.index(min(loads))
        members[lightest] |= steps_of_part
        loads[lightest] += _cost(plan, steps_of_part)
    steps_of = [_with_needs(plan, heard_by, steps) for steps in members if steps]
    heaviest = max((_cost(plan, steps) for steps in steps_of), default=0)
    if len(steps_of) < 2 or heaviest > tuning.PLAN_PART_SHARE_MAX * _cost(plan, set(plan.nodes)):
        return undivided
    kept: set[str] = set()
    made = []
    for steps in steps_of:
        made.append(PlanPart(frozenset(steps), frozenset(steps - kept)))
        kept |= steps
    return tuple(made)


def _cost(plan: Plan, steps: set[str]) -> int:
    return sum(_weight(plan.nodes[step]) for step in steps)


def _weight(node: Node) -> int:
    """The approximate cost of a step in an epoch with few rows: compute, lookups, writes, wide keys."""
    tables = node.binding.tables
    wide = [k for t in tables for k in t.key if not pa.types.is_primitive(t.schema.field(k).type)]
    return 1 + tuning.TABLE_WEIGHT * len(tables) + tuning.WIDE_KEY_WEIGHT * len(wide)


def _pieces(plan: Plan, heard_by: Heard, count: int) -> list[set[str]]:
    """The units assigned to parts, heaviest first; groups of one shape stay together to share work."""
    shapes: dict[str, list[set[str]]] = {}
    for group in _groups(plan, heard_by):
        shapes.setdefault(_shape(plan, group), []).append(group)
    total = sum(_cost(plan, group) for groups in shapes.values() for group in groups)
    pieces = []
    for _, groups in sorted(shapes.items()):
        # The groups of one shape may weigh more than one part should, so they are cut.
        cuts = min(len(groups), -(-2 * count * sum(_cost(plan, g) for g in groups) // total))
        edges = [len(groups) * n // cuts for n in range(cuts + 1)]
        pieces += [set[str]().union(*groups[lo:hi]) for lo, hi in itertools.pairwise(edges)]
    return sorted(pieces, key=lambda steps: _cost(plan, steps), reverse=True)


def _groups(plan: Plan, heard_by: Heard) -> list[set[str]]:
    """The sets of steps that must be in the same part, without the steps that any part may run."""
    shared = _shared(plan)
    needed = {step for node in plan.nodes.values() for step in _needs(plan, heard_by, node.step)}
    group = {step: {step} for step in plan.nodes if step not in shared or step not in needed}
    for step in [*group]:
        for source in _needs(plan, heard_by, step):
            if source in group and group[source] is not group[step]:
                joined = group[step] | group[source]
                group.update(dict.fromkeys(joined, joined))
    return list({id(steps): steps for steps in group.values()}.values())


def _needs(plan: Plan, heard_by: Heard, step: str) -> set[str]:
    """The other steps that must run in the same task: its inputs, and the watermarks that move its time."""
    return {*plan.nodes[step].inputs, *heard_by.get(step, ())} - {step}


def _shape(plan: Plan, steps: set[str]) -> str:
    """A text that is equal for groups that share work: same sources, same operators, same placements."""
    texts = []
    for step in steps:
        node = plan.nodes[step]
        member = Member.of(node.operator, node.binding)
        like = None if member is None else member.likeness(plan.shape(node.inputs[0]).schema)
        kind = type(node.operator).__name__ if like is None else like
        texts.append(f"{kind} {[p.kind for p in node.binding.placements]}")
    scans = [s for s in upstream(plan, steps) if isinstance(plan.nodes[s].operator, Scan)]
    return " ".join([*sorted(scans), *sorted(texts)])


def _shared(plan: Plan) -> set[str]:
    """The steps near sources that may run in several parts: they are cheap and deterministic."""
    shared: set[str] = set()
    for node in plan.topological():
        if _repeats(node) and all(source in shared for source in node.inputs):
            shared.add(node.step)
    return shared


def _repeats(node: Node) -> bool:
    """May a step run more than once?  Not a user's function: it may have side effects or read other data."""
    operator = node.operator
    if isinstance(operator, Filter | Map):
        return not operator.functions
    if isinstance(operator, Watermark):
        return not isinstance(operator.rule, Custom)
    if isinstance(operator, AssignWindows):
        return not isinstance(operator.windows, CustomWindows)
    return isinstance(operator, Scan | Upsert | Bag | Tumble | Hop | LateRows)


def _with_needs(plan: Plan, heard_by: Heard, steps: set[str]) -> set[str]:
    """The steps and all that they need, directly or not."""
    needed = set(steps)
    waiting = list(steps)
    while waiting:
        more = _needs(plan, heard_by, waiting.pop()) - needed
        needed |= more
        waiting += more
    return needed
