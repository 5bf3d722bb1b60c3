"""The watermark steps of a plan: which sources feed them, which steps hear them, which bound rows together.

Rows are traced to partitions by their origin.  So a step has one watermark per partition where every
step from the sources to it carries the origin and no exchange lies between; any other step has one
watermark for all its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from millpond.kernels.aggregate_feeds import Close
from millpond.kernels.bounds import Bound
from millpond.kernels.watermark_strategies import Custom
from millpond.operators.filter import Filter
from millpond.operators.scan import Scan
from millpond.operators.traits import CarriesOrigin, SetsWatermark
from millpond.operators.union import Union
from millpond.plan.nodes import Node, Plan, upstream

WatermarkStates = tuple[tuple[str, int], ...]  # (step, shift): the least of watermark - shift


@dataclass(frozen=True)
class WatermarkStep:
    step: str
    operator: SetsWatermark
    scans: tuple[str, ...]  # the sources that feed it
    by_partition: bool  # can its rows be traced to partitions?
    columns: Mapping[str, str] = field(default_factory=dict)  # by scan: its column with the times, unchanged


@dataclass(frozen=True)
class WatermarkSteps:
    steps: tuple[WatermarkStep, ...] = ()
    inputs: frozenset[tuple[str, int]] = frozenset()  # on the way from a scan to a step by partition
    traced: frozenset[str] = frozenset()  # the steps whose rows may carry their origin for that
    numbered: frozenset[str] = frozenset()  # scans whose rows always carry their origin for that
    whole: frozenset[str] = frozenset()  # scans of which one task must read all splits of a partition
    together: tuple[tuple[str, ...], ...] = ()  # steps whose watermarks bound the inputs of one step
    # Unions and closed windows, and the steps whose least watermark they have, each shifted by a time.
    least: tuple[tuple[str, WatermarkStates], ...] = ()
    heard_by: Mapping[str, frozenset[str]] = field(
        default_factory=dict
    )  # by step: all that may move its time
    # Watermarks of which steps that wait for them hear in the next epoch, as they are set behind these steps;
    # each with all that such a step hears (`plan.levels.with_unheard`).
    unheard: tuple[tuple[str, frozenset[str]], ...] = ()

    def named(self, step: str) -> WatermarkStep | None:
        return next((s for s in self.steps if s.step == step), None)

    def fed_by(self, scan: str) -> tuple[WatermarkStep, ...]:
        return tuple(s for s in self.steps if scan in s.scans)

    def knows(self, step: str) -> bool:
        """Is this a watermark step, or one with the least watermark of several?"""
        return any(s.step == step for s in self.steps) or any(name == step for name, _ in self.least)

    def within(self, part: Collection[str]) -> WatermarkSteps:
        """Only those that a part of the plan observes: the others stay as they were."""
        known = {s.step for s in self.steps if s.step in part}
        return replace(
            self,
            steps=tuple(s for s in self.steps if s.step in known),
            together=tuple(group for group in self.together if known.issuperset(group)),
            least=tuple((name, of) for name, of in self.least if known.issuperset(step for step, _ in of)),
        )


def watermark_steps(plan: Plan) -> WatermarkSteps:
    traceable = _traceable(plan)
    steps: list[WatermarkStep] = []
    inputs: set[tuple[str, int]] = set()
    numbered: set[str] = set()
    for node in plan.topological():
        if not isinstance(node.operator, SetsWatermark):
            continue
        before = upstream(plan, node.inputs)
        scans = tuple(sorted(s for s in before if isinstance(plan.nodes[s].operator, Scan)))
        by_partition = bool(scans) and all(i in traceable for i in node.inputs)
        columns = dict(_scan_columns(plan, node.inputs, node.operator.time))
        steps.append(WatermarkStep(node.step, node.operator, scans, by_partition, columns))
        if by_partition:
            way = (node.step, *before)
            inputs |= {(s, index) for s in way for index in range(len(plan.nodes[s].inputs))}
            rule = node.operator.rule
            apart = node.operator.learns or rule.learns or isinstance(rule, Custom)  # split by split
            numbered |= set(scans) if apart or len(scans) > 1 else set()
    least = _least(plan)
    joint = tuple(sorted(_joint_watermarks(plan, least)))
    traced = frozenset(plan.nodes[step].inputs[index] for step, index in inputs)
    return WatermarkSteps(
        tuple(steps),
        frozenset(inputs),
        traced,
        frozenset(numbered),
        frozenset(scan for s in steps if isinstance(s.operator.rule, Custom) for scan in s.scans),
        joint,
        tuple(least.items()),
        _heard_by(plan, {s.step: s.operator for s in steps}, least, joint),
    )


def _scan_columns(plan: Plan, steps: Iterable[str], column: str) -> Iterator[tuple[str, str]]:
    """The scans whose column reaches these steps unchanged."""
    for step in steps:
        node = plan.nodes[step]
        if isinstance(node.operator, Scan):
            yield step, column
        elif isinstance(node.operator, Filter | Union):
            yield from _scan_columns(plan, node.inputs, column)


def _traceable(plan: Plan) -> set[str]:
    """The steps whose rows are still in the task that read them and carry their origin."""
    traceable: set[str] = set()
    for node in plan.topological():
        if isinstance(node.operator, Scan):
            traceable.add(node.step)
        elif isinstance(node.operator, CarriesOrigin) and traceable.issuperset(node.inputs):
            traceable |= {node.step} if all(p.kind == "here" for p in node.binding.placements) else set()
    return traceable


def _least(plan: Plan) -> dict[str, WatermarkStates]:
    """The steps whose watermark is the least of several, each with the steps that set these."""
    least: dict[str, WatermarkStates] = {}
    for node in plan.topological():
        shape = node.binding.shape
        if shape.watermark != node.step or isinstance(node.operator, SetsWatermark):
            continue
        if isinstance(node.operator, Union):
            pairs = [(plan.shape(step).watermark, 0) for step in node.inputs]
        else:
            pairs = [mark for bound in shape.bounds if bound.column == shape.time for mark in bound.marks]
        least[node.step] = tuple(
            sorted(
                {
                    (step, shift + more)
                    for mark, shift in pairs
                    if mark is not None
                    for step, more in least.get(mark, ((mark, 0),))
                }
            )
        )
    return least


def _joint_watermarks(plan: Plan, least: Mapping[str, WatermarkStates]) -> set[tuple[str, ...]]:
    """The watermarks of the inputs of every step with several inputs."""
    joint = set()
    for node in plan.nodes.values():
        watermarks = _set_by(_around(plan, node), least)
        if len(watermarks) > 1:
            joint.add(tuple(sorted(watermarks)))
    return joint


def _heard_by(
    plan: Plan,
    setters: Mapping[str, SetsWatermark],
    least: Mapping[str, WatermarkStates],
    joint: Iterable[Collection[str]],
) -> dict[str, frozenset[str]]:
    """By step: the watermark steps that its time depends on.

    A window may read from in front of the watermark step that closes it, so these need not be before it.
    A watermark that may be idle follows those that bound rows together with it; one that is inherited follows
    that of the rows before.
    """
    peers: dict[str, set[str]] = {step: set() for step in setters}  # a backfill has no watermark steps
    for group in joint:
        for step in group:
            if step in setters and setters[step].idle_us is not None:
                peers[step] |= setters.keys() & set(group)
    for step, operator in setters.items():
        if operator.follows is not None:
            peers[step] |= setters.keys() & _set_by({mark for mark, _ in operator.follows.marks}, least)
    heard = {}
    for node in plan.nodes.values():
        watermarks: set[str] = set()
        waiting = [step for step in _set_by(_around(plan, node) | _named(node), least) if step in setters]
        while waiting:
            step = waiting.pop()
            if step not in watermarks:
                watermarks.add(step)
                waiting += peers[step]
        if watermarks:
            heard[node.step] = frozenset(watermarks)
    return heard


def _around(plan: Plan, node: Node) -> set[str]:
    """The watermarks that bound the inputs and the output of a step."""
    return {mark for step in node.inputs for mark in _marks(plan.nodes[step])} | _marks(node)


def _set_by(watermarks: Iterable[str], least: Mapping[str, WatermarkStates]) -> set[str]:
    return {step for mark in watermarks for step, _ in least.get(mark, ((mark, 0),))}


def _named(node: Node) -> set[str]:
    """The watermarks by which an operator drops, closes or fires."""
    values: list[Any] = [getattr(node.operator, each.name) for each in fields(node.operator)]  # type: ignore[arg-type]
    named: set[str] = set()
    while values:
        value = values.pop()
        if isinstance(value, tuple):
            values += value
        elif isinstance(value, Bound | Close):
            bound = value if isinstance(value, Bound) else value.bound
            named |= {step for step, _ in bound.marks}
    return named


def _marks(node: Node) -> set[str]:
    shape = node.binding.shape
    own = {step for bound in shape.bounds for step, _ in bound.marks}
    return own | ({shape.watermark} if shape.watermark is not None else set())
