"""Keeps the windows of a pond that an older version defined without shared slices.

Law: the same code continues the same state.  Windows that overlap were once computed by repeating each row
for every window of it.  Where the pond's plan has such steps, a pipeline that now defines `SlidingAggregate`,
or an `Aggregate` of rows in their latest windows, gets those steps instead, unless its view is replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from millpond.kernels.aggregate_feeds import Close, feeds_for
from millpond.operators.aggregate import Aggregate
from millpond.operators.assign_slices import SLICE, AssignSlices
from millpond.operators.assign_windows import FIRST, AssignWindows
from millpond.operators.map import Map
from millpond.operators.operator import Operator
from millpond.operators.sliding_aggregate import SlidingAggregate
from millpond.operators.window import END, START
from millpond.plan.nodes import Node, Plan, View


@dataclass(frozen=True)
class _Flat:
    """A chain of steps without slices: the operators, first to last, and what the first one reads."""

    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]


def with_stored_windows(
    old: Plan, wanted: Plan, replaced: Collection[str] = ()
) -> tuple[Plan, Mapping[str, str]]:
    """The pipeline with the steps that the pond has, and the new ids of steps that readers refer to."""
    sliced = [n for n in wanted.nodes.values() if _reads_slices(n.operator)]
    nodes, ids = dict(wanted.nodes), {}
    for node in sliced:
        chain = _chain(wanted, node)
        is_stored = any(n.operator == node.operator for n in old.nodes.values())
        if is_stored or node.step in replaced or chain is None:
            continue
        flat = _flattened(chain)
        stored = None if flat is None else _stored(old, flat)
        if flat is None or stored is None:
            continue
        before = flat.inputs
        for operator, step in zip(flat.operators, stored, strict=True):
            shapes = tuple(nodes[i].binding.shape for i in before)
            nodes[step] = Node(step, operator, before, operator.bind(step, shapes))
            before = (step,)
        ids[node.step] = stored[-1]
        if node.step != stored[-1]:
            del nodes[node.step]
    if not ids:
        return wanted, {}
    for step, node in nodes.items():
        nodes[step] = replace(node, inputs=tuple(ids.get(i, i) for i in node.inputs))
    views = {name: moved_view(view, ids) for name, view in wanted.views.items()}
    return replace(wanted, nodes=_without_unread_slices(nodes), views=views), ids


def moved_view(view: View, ids: Mapping[str, str]) -> View:
    """The view of a step with a new id."""
    step, _, name = view.table.rpartition("/")
    return replace(view, step=ids.get(view.step, view.step), table=f"{ids.get(step, step)}/{name}")


def _reads_slices(operator: Operator) -> bool:
    if isinstance(operator, Aggregate):
        return operator.spread is not None and operator.spread.first is not None
    return isinstance(operator, SlidingAggregate)


def _makes_slices(operator: Operator) -> bool:
    return isinstance(operator, AssignSlices) or (isinstance(operator, AssignWindows) and operator.latest)


def _without_unread_slices(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Without the steps that prepare slices which no step reads any more."""
    kept = dict(nodes)
    while True:
        read = {i for node in kept.values() for i in node.inputs}
        over = [
            s for s, n in kept.items() if s not in read and {SLICE, FIRST} & {*n.binding.shape.schema.names}
        ]
        if not over:
            return kept
        for step in over:
            del kept[step]


def _chain(plan: Plan, node: Node) -> tuple[Node, ...] | None:
    """The steps from the assignment of slices to this one."""
    found = [node]
    while not _makes_slices(found[0].operator):
        if len(found[0].inputs) != 1:
            return None
        found.insert(0, plan.nodes[found[0].inputs[0]])
    return tuple(found)


def _flattened(chain: tuple[Node, ...]) -> _Flat | None:
    first, last = chain[0].operator, chain[-1].operator
    if isinstance(first, AssignWindows) and isinstance(last, Aggregate):
        flat_windows: Operator = replace(first, latest=False)
        flat_groups: Operator = replace(last, spread=None)
    else:
        assert isinstance(first, AssignSlices) and isinstance(last, SlidingAggregate)
        windows, until = first.windows, last.until
        if (last.start, last.end) != (START, END) or not windows.on_grid:
            return None
        flat_windows = AssignWindows(first.time, windows, first.watermark, 0, False, first.reports)
        closes = Close(END, until.marks[0][0], windows.width_us, until.marks)
        feeds = feeds_for(last.aggs, append_only=True)
        flat_groups = Aggregate(last.shown, last.aggs, feeds, closes)
    between: list[Operator] = []
    for node in chain[1:-1]:
        if not isinstance(node.operator, Map):
            return None
        between.append(Map(tuple(p for pair in node.operator.columns for p in _windowed(pair))))
    return _Flat((flat_windows, *between, flat_groups), chain[0].inputs)


def _windowed(pair: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """A column of a projection; the bounds of the window instead of the slice, and no first window."""
    if pair[0] == FIRST:
        return ()
    return tuple((name, f'"{name}"') for name in (START, END)) if pair[0] == SLICE else (pair,)


def _stored(old: Plan, flat: _Flat) -> tuple[str, ...] | None:
    """The steps of the pond with these operators."""
    for node in old.nodes.values():
        if node.operator != flat.operators[-1]:
            continue
        found = [node]
        while len(found) < len(flat.operators) and len(found[0].inputs) == 1:
            found.insert(0, old.nodes[found[0].inputs[0]])
        if tuple(n.operator for n in found) == flat.operators and found[0].inputs == flat.inputs:
            return tuple(n.step for n in found)
    return None
