"""The steps between windows and their panes, for `window()` and for SQL.

Rows with windows go into a triggered step; the rows that it releases become the contents of windows, by
whatever steps the front end builds; a last step makes panes of the contents and of the firings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from millpond.flow.builder import Builder
from millpond.flow.stream_watermarks import bound_of_time, without_punctuations
from millpond.kernels.bounds import Bound
from millpond.kernels.triggers import Trigger
from millpond.operators.branch import Arm, Branch
from millpond.operators.emit_discarded import EmitDiscarded
from millpond.operators.emit_panes import EmitPanes
from millpond.operators.filter import Filter
from millpond.operators.filter_rows import FilterRows
from millpond.operators.flat_map import FlatMap
from millpond.operators.map import Map
from millpond.operators.map_batches import MapBatches
from millpond.operators.panes import LAST, PANE, TIMING, PickPanes
from millpond.operators.triggered import Triggered
from millpond.operators.triggered_sessions import TriggeredSessions
from millpond.operators.union import Union
from millpond.operators.watermark import Watermark
from millpond.operators.window import END, START
from millpond.operators.within_epoch import WithinEpoch
from millpond.plan.nodes import Plan, upstream

Mode = Literal["retracting", "accumulating", "discarding"]
LINEAR = (Map, Filter, FilterRows, FlatMap, MapBatches, Branch, Arm)


@dataclass(frozen=True)
class WindowSteps:
    """Builds the steps of triggered windows over a step whose rows have windows."""

    builder: Builder
    assigned: str  # the step whose rows have windows
    key: tuple[str, ...]  # the user's
    merges: bool  # are windows of a key that overlap one window?
    trigger: Trigger
    watermark: Bound | None  # of the time column
    mode: Mode
    base: str  # how the names of steps begin
    owner: str = ""  # the SQL view that the triggered step belongs to
    merge: Any = None  # a user's function, instead of merging where windows overlap

    @property
    def window_key(self) -> tuple[str, ...]:
        return (*self.key, START, END)

    @property
    def placed(self) -> tuple[str, ...]:
        """How the rows of a triggered step are placed."""
        return self.key if self.merges else self.window_key

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(self.builder.shape(self.assigned).schema.names)

    def operator(self) -> Triggered | TriggeredSessions:
        until = end_bound(self.builder, self.assigned)
        discards = self.mode == "discarding"
        if not self.merges:
            return Triggered(self.key, self.trigger, self.watermark, until, discards, self.owner)
        return TriggeredSessions(
            self.key, self.trigger, self.watermark, until, discards, self.merge, self.owner
        )

    def triggered(self) -> str:
        return self.builder.add(None, self.operator(), (self.assigned,), f"{self.base}.trigger")

    def released(self) -> str:
        """The rows that firings release; with the number of their pane where panes are discarded."""
        columns = (*self._columns, PANE) if self.mode == "discarding" else self._columns
        pick = PickPanes("rows", columns, self.placed)
        return self.builder.add(None, pick, (self.triggered(),), f"{self.base}.released")

    def finished(self) -> str:
        """The rows that came after the last firing of their window."""
        pick = PickPanes("late", self._columns, self.placed)
        return self.builder.add(None, pick, (self.triggered(),), f"{self.base}.finished")

    def panes(
        self,
        build: Callable[[], str],
        *,
        id: str | None = None,
        shows: bool = False,
        single: bool = False,
        empty: tuple[tuple[str, Any], ...] | None = None,
    ) -> str:
        """The panes of the contents that `build` makes of the released rows."""
        builder, key = self.builder, self.window_key
        pick = PickPanes("firing", (*key, PANE, TIMING, LAST), self.placed)
        firings = builder.add(None, pick, (self.triggered(),), f"{self.base}.firings")
        operator: EmitDiscarded | EmitPanes
        if self.mode == "discarding":
            contents = within_epoch(builder, key, build)
            operator = EmitDiscarded(key, shows, empty if single else None)
        else:
            contents = build()
            operator = EmitPanes(key, self.mode == "accumulating", shows, single)
        inputs = (firings, contents)
        return builder.add(id, builder.ended(operator, inputs), inputs, f"{self.base}.panes")


def end_bound(builder: Builder, step: str) -> Bound | None:
    """The bound by which the state of a window expires."""
    return next((b for b in builder.shape(step).bounds if b.column == END), None)


def watermark_of(builder: Builder, step: str, time: str) -> Bound | None:
    """The bound of a time column: the watermark that limits its later values."""
    return bound_of_time(builder.shape(step), time)


def before_watermark(builder: Builder, step: str) -> tuple[str, bool]:
    """The same rows with those that a watermark step took out as late, if only linear steps follow it.

    Windows judge lateness themselves.  Returns the step, and whether there was a watermark step.
    """
    found = _before_watermark(builder, step)
    return (step, False) if found is None else (found, True)


def _before_watermark(builder: Builder, step: str) -> str | None:
    node = builder.plan.nodes[step]
    if isinstance(node.operator, Watermark):
        return without_punctuations(builder, step)
    if isinstance(node.operator, (*LINEAR, Union)):
        inputs = [_before_watermark(builder, one) for one in node.inputs]
        if inputs and all(one is not None for one in inputs):
            unfiltered = tuple(one for one in inputs if one is not None)
            return builder.add(None, node.operator, unfiltered, f"{step}.unfiltered")
    return None


def learn_delays(builder: Builder, step: str) -> None:
    """Let the watermarks of a stream learn how late its rows are."""
    for name in upstream(builder.plan, [step]):
        node = builder.plan.nodes[name]
        if isinstance(node.operator, Watermark) and not node.operator.learns:
            operator = replace(node.operator, learns=True)
            binding = operator.bind(name, tuple(builder.shape(one) for one in node.inputs))
            made = replace(node, operator=operator, binding=binding)
            nodes = {**builder.plan.nodes, name: made}
            changed = replace(builder.plan, nodes=nodes)
            builder.change(partial(_instead, changed))


def _instead(new: Plan, _: Plan) -> Plan:
    return new


def within_epoch(builder: Builder, key: tuple[str, ...], build: Callable[[], str]) -> str:
    """Build steps, and let those with state work on the rows of one epoch alone."""
    before = builder.plan
    last = build()
    made = [node for node in builder.plan.topological() if node.step not in before.nodes]
    builder.change(partial(_instead, before))
    ids: dict[str, str] = {}
    for node in made:
        inputs = tuple(ids.get(one, one) for one in node.inputs)
        operator: Any = WithinEpoch(node.operator, key) if node.binding.tables else node.operator
        ids[node.step] = builder.add(None, operator, inputs, node.step)
    return ids.get(last, last)
