"""Plans and their nodes.

A plan is a graph of nodes.
A node is the bound form of a step: the id that the user chose, the operator, the ids of its inputs, and the
binding, which is computed once, when the node is created, and stored with it.
SQL and the flow API build the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.operators.operator import Binding, Operator, Shape
from millpond.plan.objects import SqlObject
from millpond.plan.sink_settings import SinkSettings
from millpond.state.tables.table_spec import TableSpec
from millpond.valid_text import require_text


@dataclass(frozen=True)
class Node:
    step: str
    operator: Operator
    inputs: tuple[str, ...]
    binding: Binding
    reads: tuple[tuple[str, ...] | None, ...] = ()  # the old columns of inputs that gained columns later


@dataclass(frozen=True)
class View:
    """A name that people read: the table with its rows, and the columns that they see."""

    name: str
    step: str
    table: str
    columns: tuple[tuple[str, str], ...] = ()  # (shown, stored); empty if all are shown as they are stored
    feed: str | None = None  # the table whose changes readers receive, if it is not the view's own
    exact: bool = False  # no row that it reads may be shed
    error_bound: float | None = None  # the relative error that shedding may cause in a group of average size

    def stored_columns(self, names: Iterable[str]) -> list[str]:
        """The columns of the table that the view shows."""
        return [stored for _, stored in self.columns] if self.columns else list(names)

    def shown(self, rows: pa.Table) -> pa.Table:
        """Rows with their columns renamed to what the view calls them."""
        names = {stored: shown for shown, stored in self.columns}
        return rows.rename_columns([names.get(n, n) for n in rows.column_names]) if names else rows


def require_error_bound(bound: Any) -> None:
    """Check the error that a view allows."""
    if bound is None:
        return
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not 0 < bound < 1:
        raise InvalidError(
            "an error bound is a share between 0 and 1", detail=f"got {bound!r}", hint="0.01 is one percent"
        )


@dataclass(frozen=True)
class SinkNode:
    """A view's changes, delivered to a target after each commit."""

    name: str
    view: str
    sink: Any
    settings: SinkSettings = field(default_factory=SinkSettings)


@dataclass(frozen=True)
class Plan:
    nodes: Mapping[str, Node] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    sinks: Mapping[str, SinkNode] = field(default_factory=dict)
    left: Mapping[str, TableSpec] = field(default_factory=dict)  # removed state in old runs: plan.evolution
    objects: Mapping[str, SqlObject] = field(default_factory=dict)  # by name in SQL

    def shape(self, step: str) -> Shape:
        return self.nodes[step].binding.shape

    def topological(self) -> Iterator[Node]:
        """Nodes with inputs before their consumers, otherwise in the order of definition."""
        done: set[str] = set()

        def visit(step: str) -> Iterator[Node]:
            if step in done:
                return
            done.add(step)
            for source in self.nodes[step].inputs:
                yield from visit(source)
            yield self.nodes[step]

        for step in self.nodes:
            yield from visit(step)

    def consumers(self) -> dict[str, list[tuple[str, int]]]:
        """The consumers of every step: (step, input index)."""
        edges: dict[str, list[tuple[str, int]]] = {step: [] for step in self.nodes}
        for node in self.nodes.values():
            for index, source in enumerate(node.inputs):
                edges[source].append((node.step, index))
        return edges

    def with_node(self, step: str, operator: Operator, inputs: tuple[str, ...]) -> tuple[Plan, str]:
        """Add a step, or find an equal one (equal sub-plans are one node); the plan and the id in it.

        Sources are equal only if they have the same id: two sources with equal settings may read different
        rows, and each has its own position.
        """
        for node in self.nodes.values():
            same = node.inputs == inputs and node.operator == operator and not node.reads
            if same and (inputs or node.step == step):
                return self, node.step
        if step in self.nodes:
            raise InvalidError(
                f"step id {step!r} is used twice",
                detail=f"the first is {describe(self.nodes[step].operator)}, the second {describe(operator)}",
                hint="give one of them another id",
                step=step,
            )
        binding = operator.bind(step, tuple(self.shape(i) for i in inputs))
        return replace(self, nodes={**self.nodes, step: Node(step, operator, inputs, binding)}), step

    def with_view(self, view: View) -> Plan:
        old = self.views.get(require_text(view.name, "the name of a view"))
        if old is not None and old != view:
            raise InvalidError(f"view {view.name!r} is defined twice", hint="give one of them another name")
        return replace(self, views={**self.views, view.name: view})

    def with_object(self, made: SqlObject) -> Plan:
        return replace(self, objects={**self.objects, made.name: made})

    def with_sink(self, sink: SinkNode) -> Plan:
        if require_text(sink.name, "the name of a sink") in self.sinks and self.sinks[sink.name] != sink:
            raise InvalidError(f"sink {sink.name!r} is defined twice", hint="give one of them another name")
        return replace(self, sinks={**self.sinks, sink.name: sink})


def upstream(plan: Plan, steps: Iterable[str]) -> set[str]:
    """These steps and all steps that they are computed from."""
    steps_before: set[str] = set()
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        if step not in steps_before:
            steps_before.add(step)
            waiting += plan.nodes[step].inputs
    return steps_before


def narrowed(shape: Shape, reads: tuple[str, ...] | None) -> Shape:
    """The shape of an input as a node was bound to it, before it gained columns (`Node.reads`)."""
    if reads is None:
        return shape
    return replace(shape, schema=pa.schema([shape.schema.field(name) for name in reads]))


def describe(operator: Operator) -> str:
    return type(operator).__name__
