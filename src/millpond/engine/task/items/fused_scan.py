"""Runs a scan and the steps after it over one batch of rows at a time.

Law: a step that `AppliesByBatch` gives the same rows for an input as for its batches together, so the batch
boundaries make no difference (law 3).

Much of the cost of a large scan is the first access to memory.  Steps that process a scan row by row reuse
the memory of the previous batch; only the rows that other steps read are stored.  Local lookups can be part
of a fused scan: their right side is known before their rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond import tuning
from millpond.delta import ORIGIN
from millpond.engine.task.failing_step import naming_step
from millpond.engine.task.items.apply import LocalLookup
from millpond.engine.task.items.read import ReadSource
from millpond.engine.task.partitioning import OWN_COLUMNS, concat, one_chunk_if_few
from millpond.operators.operator import Change, StepResult
from millpond.operators.traits import DropsUnneededRows, PreAggregatesByBatch, Ready
from millpond.plan.nodes import Node, Plan
from millpond.sources.source import Split

if TYPE_CHECKING:
    from millpond.engine.task.task_plan import Item
    from millpond.engine.task.task_run import TaskRun


@dataclass(frozen=True)
class BatchOutput:
    """A step of a fused scan whose rows other steps read, and how each batch of them is reduced."""

    step: str
    reader: tuple[str, int] | None = None  # the only input that reads these rows, if it can reduce each batch
    pre_aggregates: bool = False  # can the reader pre-aggregate rows before they are sent?


@dataclass(frozen=True)
class FusedScan:
    scan: ReadSource
    items: tuple[Item, ...]  # after the scan, in order
    outputs: tuple[BatchOutput, ...]
    encoded: frozenset[str] = frozenset()  # text columns that stay dictionary-encoded until they are sent

    @property
    def steps(self) -> tuple[str, ...]:
        return (*self.scan.steps, *(step for item in self.items for step in item.steps))

    def run(self, task: TaskRun) -> None:
        splits = task.splits(self.scan.step)
        if sum(split.rows for _, split in splits) < tuning.FUSED_SCAN_ROWS_MIN:
            for item in (self.scan, *self.items):
                item.run(task)
            return
        before = task.outputs
        batches = Batches(
            {
                out.step: ReducedRows(
                    task.plan,
                    out,
                    task.levels.columns[out.step],
                    out.step in task.levels.with_origin,
                    task.spec.epoch,
                )
                for out in self.outputs
            },
            self.encoded,
        )
        for item in self.items:
            if isinstance(item, LocalLookup):
                ready = task.ready(task.plan.nodes[item.step])
                batches.ready[item.step] = ready
                batches.results[item.step] = [ready.result]
        task.batches = batches
        for batch in grouped(splits):
            task.outputs = {}
            batches.splits = batch
            for item in (self.scan, *self.items):
                item.run(task)
        task.outputs, task.batches = before, None
        for step, results in batches.results.items():
            task.keep(task.plan.nodes[step], summed(results))
        if self.encoded:
            task.note("dictionary_columns", self.scan.step, 0)
        for step, batches_of_step in batches.outputs.items():
            if batches_of_step.reduces:
                task.note("batch_reduction", step, 0)
            if batches_of_step.pre_aggregated:
                task.reduced.add(step)
            if batches_of_step:
                task.outputs[step] = one_chunk_if_few(batches_of_step.all())

    def text(self) -> str:
        lines = [f"fused scan {self.scan.step}"]
        if self.encoded:
            lines[0] += f"; encoded {', '.join(sorted(self.encoded))}"
        lines += [f"  {item.text()}" for item in self.items]
        for out in self.outputs:
            how = "" if out.reader is None else f" reduced for {out.reader[0]}"
            lines.append(f"  keep {out.step}{how}{', pre-aggregated' if out.pre_aggregates else ''}")
        return "\n".join(lines)


@dataclass
class Batches:
    """What a fused scan collects while it runs."""

    outputs: dict[str, ReducedRows]
    encoded: frozenset[str]
    ready: dict[str, Ready] = field(default_factory=dict)  # lookups whose right side has been read
    results: dict[str, list[StepResult]] = field(default_factory=dict)  # by step, without the output rows
    splits: Sequence[tuple[int, Split]] = ()  # of the current batch

    def add(self, node: Node, result: StepResult) -> None:
        self.results.setdefault(node.step, []).append(replace(result, out=None))


class ReducedRows:
    """The rows of a step that other steps read, by batch, reduced to what its only reader needs."""

    def __init__(
        self, plan: Plan, output: BatchOutput, columns: Sequence[str], origin: bool, epoch: int
    ) -> None:
        self._output = output
        self._reader = None if output.reader is None else plan.nodes[output.reader[0]]
        self._index = 0 if output.reader is None else output.reader[1]
        self._columns = frozenset(columns)
        self._own = OWN_COLUMNS if origin else [n for n in OWN_COLUMNS if n != ORIGIN]
        self._epoch = epoch
        self._batches: list[pa.Table] = []
        self.pre_aggregated = False  # did the reader pre-aggregate the batches?

    def add(self, rows: pa.Table) -> None:
        # Rows that were read with all columns have more columns than the step must output.
        names = [n for n in rows.column_names if n in self._columns or n in self._own]
        rows = rows.select(names or rows.column_names[:1])
        if self._reader is not None:
            with naming_step(self._reader.step, self._epoch):
                rows = self._reduced(self._reader, rows)
        self._batches.append(rows)

    def _reduced(self, reader: Node, rows: pa.Table) -> pa.Table:
        operator = reader.operator
        if isinstance(operator, PreAggregatesByBatch):
            if not self._batches and self._output.pre_aggregates:
                self.pre_aggregated = operator.shrinks(reader.binding, self._index, rows)
            return operator.shrunk(reader.binding, self._index, rows) if self.pre_aggregated else rows
        if isinstance(operator, DropsUnneededRows):
            return operator.thin(reader.binding, self._index, rows)
        return rows

    @property
    def reduces(self) -> bool:
        return self._reader is not None

    def __bool__(self) -> bool:
        return bool(self._batches)

    def all(self) -> pa.Table:
        return concat(self._batches)


def grouped(splits: Sequence[tuple[int, Split]]) -> Iterator[list[tuple[int, Split]]]:
    """Group splits into batches, in order; small splits share a batch."""
    group: list[tuple[int, Split]] = []
    rows = 0
    for number, split in splits:
        group.append((number, split))
        rows += split.rows
        if rows >= tuning.FUSED_SCAN_BATCH_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def summed(results: Sequence[StepResult]) -> StepResult:
    """The combined result of a step for all batches, without its output rows."""
    rows: dict[str, list[pa.Table]] = {}
    counts: dict[str, int] = {}
    for result in results:
        for change in result.changes:
            rows.setdefault(change.table, []).append(change.rows)
        for name, count in result.counts.items():
            counts[name] = counts.get(name, 0) + count
    errors = [result.errors for result in results if result.errors is not None]
    return StepResult(
        changes=tuple(Change(table, pa.concat_tables(parts)) for table, parts in rows.items()),
        errors=pa.concat_tables(errors) if errors else None,
        counts=counts,
    )
