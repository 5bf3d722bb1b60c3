"""Evaluates all filters of the same rows with one query.

Law: every filter keeps the same rows as if it ran alone.  If the query fails on a row, each filter runs
alone, so that error rows name the right step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millpond.engine.task.failing_step import naming_step
from millpond.engine.task.hash_order import HashOrder, true_in
from millpond.engine.task.items.apply import Apply
from millpond.engine.task.partitioning import selected
from millpond.engine.task.picked_rows import Picked
from millpond.kernels.expression_kernel import masks
from millpond.operators.operator import StepResult

if TYPE_CHECKING:
    from millpond.engine.task.task_run import TaskRun

Key = tuple[str, ...]


@dataclass(frozen=True)
class SharedFilters:
    source: str  # the step whose rows they read
    filters: tuple[str, ...]
    hash_keys: tuple[tuple[str, Key], ...] = ()  # by filter: the key by whose hash its rows are sorted
    as_positions: frozenset[str] = frozenset()  # filters that output positions of rows instead of copies

    @property
    def steps(self) -> tuple[str, ...]:
        return self.filters

    def run(self, task: TaskRun) -> None:
        rows = task.outputs.get(self.source)
        if rows is None:
            return
        started = time.perf_counter_ns()
        nodes = [task.plan.nodes[step] for step in self.filters]
        with naming_step(self.filters[0], task.spec.epoch):
            each_mask = masks(rows, [node.binding.extra for node in nodes])
        task.took(self.filters[0], started)
        if each_mask is None:
            for step in self.filters:
                Apply(step).run(task)
            return
        keys = {} if task.batches is not None else dict(self.hash_keys)
        orders: dict[Key, HashOrder | None] = {}
        for step, mask in zip(self.filters, each_mask, strict=True):
            started = time.perf_counter_ns()
            with naming_step(step, task.spec.epoch):
                key = keys.get(step)
                if key is not None and key not in orders:
                    orders[key] = HashOrder.of(rows, key)
                order = None if key is None else orders[key]
                if task.batches is None and step in self.as_positions:
                    task.give_positions(step, _positions(rows, mask, order))
                else:
                    self._keep(task, step, rows, mask, order)
            task.took(step, started)

    def _keep(
        self, task: TaskRun, step: str, rows: pa.Table, mask: pa.ChunkedArray, order: HashOrder | None
    ) -> None:
        node = task.plan.nodes[step]
        asked = task.asked(node, 0, rows)
        result = StepResult(selected(asked, mask) if order is None else order.selected(asked, mask))
        task.check(node, result)
        task.finish(node, result, "shared_filters" if order is None else "hash_order")

    def text(self) -> str:
        keys = sorted({f"({', '.join(key)})" for _, key in self.hash_keys})
        notes = [f"sorted by hash of {', '.join(keys)}"] if keys else []
        if self.as_positions:
            notes.append(f"positions of {', '.join(s for s in self.filters if s in self.as_positions)}")
        return "; ".join([f"shared filters {', '.join(self.filters)} of {self.source}", *notes])


@dataclass(frozen=True)
class PassPositions:
    """A projection that only renames columns: it renames those of the positions, without a copy."""

    step: str

    @property
    def steps(self) -> tuple[str, ...]:
        return (self.step,)

    def run(self, task: TaskRun) -> None:
        node = task.plan.nodes[self.step]
        before = task.positions.get(node.inputs[0])
        if before is None or task.batches is not None:
            if node.inputs[0] in task.outputs:
                Apply(self.step).run(task)
            return
        started = time.perf_counter_ns()
        names = {name: before.names.get(bound.column) for name, bound in node.binding.extra}
        columns = {name: column for name, column in names.items() if column is not None}
        task.give_positions(self.step, replace(before, names=columns))
        task.took(self.step, started)

    def text(self) -> str:
        return f"pass positions {self.step}"


def _positions(rows: pa.Table, mask: pa.ChunkedArray, order: HashOrder | None) -> Picked:
    names = {name: name for name in rows.column_names}
    if order is None:
        return Picked(rows, np.flatnonzero(true_in(mask)), names, None)
    places, hashes = order.positions(mask)
    return Picked(rows, places, names, hashes)
