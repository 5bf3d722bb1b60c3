"""One running task of one level: the rows, results and counts that the items of its plan share.

`TaskPlan` says what runs, and how.  A task depends only on the spec, the rows that it received and the store;
`engine.task.level` makes the frames.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, ORIGIN, ORIGIN_BITS, consolidate, weights
from millpond.engine.change import coalesced_buckets
from millpond.engine.change.table_history import past_rows
from millpond.engine.task import checks, frames, watermarks
from millpond.engine.task.failing_step import naming_step
from millpond.engine.task.items.fused_scan import Batches
from millpond.engine.task.partitioning import OWN_COLUMNS, concat, placed, received_rows
from millpond.engine.task.picked_rows import Picked
from millpond.engine.task.plan_parts import PlanPart
from millpond.engine.task.prefetching import cache_counts
from millpond.engine.task.settled_watermarks import settled, with_least
from millpond.engine.task.source_reading import ReadRows, read
from millpond.engine.task.spec import EpochSpec
from millpond.engine.task.worker import Worker
from millpond.errors import InternalError, MillpondError
from millpond.kernels.watermark_strategies import Custom
from millpond.operators.operator import NOTHING, Change, StepResult
from millpond.operators.scan import Scan
from millpond.operators.state_scan import StateScan
from millpond.operators.traits import (
    FiresByTime,
    PreparesInput,
    Ready,
    RunsInOneTask,
    SetsWatermark,
    StreamsFirstInput,
)
from millpond.ordering import distinct
from millpond.plan.backfill import is_constant
from millpond.plan.levels import Edge, Levels, placements
from millpond.plan.nodes import Node, Plan
from millpond.sources.source import Split
from millpond.state.manifest.listing import Listing, live_runs
from millpond.state.retention import ERRORS
from millpond.state.runs import run_names
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.error_rows import ERRORS_SPEC
from millpond.state.tables.table import Table
from millpond.state.tables.table_spec import TableSpec

LAST_HASH = (1 << 64) - 1

Arrived = Mapping[tuple[str, int], list[pa.Table]]


class StepContext:
    """The context of an operator during its step; see `operators.operator.Context`."""

    def __init__(self, task: TaskRun, node: Node, everywhere: bool) -> None:
        self._task = task
        self._node = node
        self.step = node.step
        self.epoch = task.spec.epoch
        self.now_us = task.spec.now_us
        self.task = task.task
        self.h_min = 0 if everywhere else task.h_min
        self.h_max = LAST_HASH if everywhere else task.h_max
        self.output_is_read = node.step in task.task_plan.wanted
        self.backfilling = task.spec.past is not None  # is this a backfill of new steps?
        self.vectorize_user_code = task.spec.vectorize_user_code
        self._is_local = node.step in task.levels.local_lookups.lookups

    def table(
        self,
        name: str,
        *,
        everywhere: bool = False,
        buckets: Collection[int] | None = None,
        below_bucket: int | None = None,
    ) -> Table:
        spec = next(t for t in self._node.binding.tables if t.name == name)
        runs = self._task.listing.runs(name)
        if buckets is not None:
            spans = self._task.spans.get(name)
            buckets = buckets if spans is None else coalesced_buckets.kept_in(buckets, spans)
            runs = [r for r in runs if r.bucket in buckets]
        if below_bucket is not None:
            runs = [r for r in runs if r.bucket is not None and r.bucket < below_bucket]
        if everywhere or self._is_local:
            return Table(spec, runs, self._task.worker.open_file)
        return Table(spec, runs, self._task.worker.open_file, self.h_min, self.h_max)

    def watermark_before(self, step: str) -> int | None:
        return watermarks.bound(self._task.spec.watermarks, step)

    def watermark(self, step: str) -> int | None:
        return watermarks.bound(self._heard(step), step)

    def watermark_at(self, step: str, share: float) -> int | None:
        return watermarks.bound_at(self._heard(step), step, share)

    def _heard(self, step: str) -> Mapping[str, Any]:
        task = self._task
        if task.part is not None and not task.levels.watermarks.knows(step):
            raise InternalError(
                "a part of the plan asked for a watermark that it does not observe",
                detail=f"the watermark is {step!r}",
                hint="set MILLPOND_PASSES_OFF=plan_parts until this is fixed",
                step=self.step,
                epoch=self.epoch,
            )
        return task.heard


class TaskRun:
    """The state of one task during one call."""

    def __init__(
        self,
        spec: EpochSpec,
        level: int,
        task: int,
        worker: Worker,
        listing: Listing | None = None,
        part: PlanPart | None = None,
        single_task: bool = False,
    ) -> None:
        """`listing` is that of the spec, if the caller has opened it; `part` is the part of the plan to run.

        With `single_task` the levels before and after this one run in this process, too, as its only task.
        """
        self.started = time.perf_counter_ns()
        self.cache_before = cache_counts(worker.store)
        self.spec = spec
        self.level = level
        self.task = task
        self.worker = worker
        self.attempt = os.urandom(8).hex()
        self.task_plan = worker.task_plan(spec, level, part, single_task)
        self.plan: Plan = self.task_plan.plan
        self.levels: Levels = self.task_plan.levels
        self.single_task = single_task
        self.part = part
        if listing is None:
            listing = Listing(live_runs(spec.pages, spec.recent, spec.gone, worker.pages))
        self.listing = listing
        worker.trim(self.listing)
        # Equal in all tasks of a level.
        self.heard: dict[str, Any] = with_least(spec.watermarks, self.levels.watermarks)
        # What tasks up to this one observed; in a backfill, the states that follow from it.
        self.watermarks: dict[str, Any] = {} if spec.past is None else dict(spec.watermarks)
        past = spec.past
        if past is not None and past.rises is not None:
            watermarks.merge(self.watermarks, past.rises)
        self._partitions: dict[str, str] = {}  # by scan: the partition of the rows that are being read
        # Rows for the functions of custom watermarks, by step, scan and partition.
        self._of_functions: dict[tuple[str, tuple[str, str]], list[tuple[int, pa.Table]]] = {}
        self.spans: Mapping[str, tuple[int, ...]] = {} if past is None else past.spans
        bounds = hashing.bounds(spec.parallelism[level])
        self.h_min = int(bounds[task])
        self.h_max = int(bounds[task + 1]) - 1 if task + 1 < len(bounds) else LAST_HASH
        self.writer = PackedWriter()
        self.drops: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.errors: list[pa.Table] = []
        self.errors_ended = False  # may an error row of an earlier epoch be retracted?
        self.step_us: dict[str, int] = {}
        self.rows_in = 0
        self.needs_full_rows = False  # did a step request all columns?
        self.outputs: dict[str, pa.Table] = {}  # by step; within a fused scan, of the current batch
        self.positions: dict[str, Picked] = {}  # by step: positions that represent its rows
        self.arrived: Arrived = {}  # by (step, index of its input)
        self.batches: Batches | None = None  # of the fused scan that is running
        self.reduced: set[str] = set()  # steps whose rows their reader has pre-aggregated, batch by batch
        # By execution method: the steps that ran with it, and how many rows they output.
        self.ran: dict[str, dict[str, int]] = {"single_task": {}} if single_task else {}
        if part is not None:
            self.ran["plan_parts"] = {}

    def receive_headers(self, headers: Mapping[tuple[int, int], frames.Header]) -> None:
        """Merge the watermarks of the tasks before this one."""
        spec = self.spec
        for key in sorted(headers):
            if spec.past is None:
                watermarks.hear(self.watermarks, headers[key].watermarks)
            else:
                watermarks.merge(self.watermarks, headers[key].watermarks)
        if spec.past is None:
            if self.level:
                self.heard = settled(
                    spec.watermarks, self.watermarks, spec.arrivals, spec.now_us, self.levels.watermarks
                )
        elif spec.past.rises is not None:
            self.heard = with_least(self.watermarks, self.levels.watermarks)

    # -- running items -----------------------------------------------------

    def run(self, received: Mapping[int, list[pa.Table]]) -> None:
        """Run all items; the output of steps is in `outputs` and `positions`."""
        self.arrived = {
            consumer: received[edge.id]
            for edge in self.levels.edges
            if edge.to_level == self.level and edge.id in received
            for consumer in edge.consumers
        }
        for item in self.task_plan:
            item.run(self)
        self._call_functions()

    def took(self, step: str, started: int, share: int = 1) -> None:
        """Account for the time since `started`, or a share of it."""
        us = (time.perf_counter_ns() - started) // 1000 // share
        self.step_us[step] = self.step_us.get(step, 0) + us

    def note(self, way: str, step: str, rows: int) -> None:
        ran = self.ran.setdefault(way, {})
        ran[step] = ran.get(step, 0) + rows

    def give(self, step: str, rows: pa.Table | None, way: str) -> None:
        """Publish the output rows of a step to its readers."""
        count = 0 if rows is None else rows.num_rows
        self.note(way, step, count)
        if self.batches is not None:
            self.note("fused_scans", step, 0)
        if rows is not None and count:
            self.outputs[step] = rows
            if self.batches is not None and step in self.batches.outputs:
                self.batches.outputs[step].add(rows)

    def give_positions(self, step: str, positions: Picked) -> None:
        self.note("row_positions", step, positions.num_rows)
        self.positions[step] = positions

    def finish(self, node: Node, result: StepResult, way: str) -> None:
        """Record the result of a step, and publish its rows."""
        if self.batches is None:
            self.keep(node, result)
        else:
            self.batches.add(node, result)
        self.give(node.step, self._given(node, result), way)

    def ready(self, node: Node) -> Ready:
        """Prepare a step for batches of its first input, by reading its other inputs completely."""
        assert isinstance(node.operator, StreamsFirstInput)
        sides = [
            self.asked(node, 1 + n, self.outputs.get(source)) for n, source in enumerate(node.inputs[1:])
        ]
        with naming_step(node.step, self.spec.epoch):
            prepared = node.operator.ready(self.context(node), node.binding, tuple(sides))
        self.check(node, prepared.result)
        return prepared

    def streamed(self, node: Node, ready: Ready) -> StepResult:
        """The result of a prepared step for the current batch."""
        delta = self.asked(node, 0, self.outputs.get(node.inputs[0]))
        result = NOTHING if delta is None else ready.take(delta)
        self.check(node, result)
        return result

    def check(self, node: Node, result: StepResult) -> None:
        if self.spec.checks:
            checks.check_result(node, result, self.context(node))

    def splits(self, step: str) -> Sequence[tuple[int, Split]]:
        """The splits of a source that this task reads, each with its number in the admission."""
        if self.batches is not None:
            return self.batches.splits
        return [(number, split) for of, number, split in self.spec.splits[self.task] if of == step]

    def read_source(self, step: str, splits: Sequence[tuple[int, Split]]) -> pa.Table | None:
        node = self.plan.nodes[step]
        scan = node.operator
        assert isinstance(scan, Scan)
        arrived = self._read(node, scan, self.levels.columns[node.step], splits)
        if arrived.rows is not None and self._wants_full_rows(node.step, arrived.rows):
            arrived = self._read(node, scan, tuple(node.binding.shape.schema.names), splits)
        for partition, at_us in arrived.bounds:
            if self.spec.past is None:
                marked = self.levels.watermarks
                watermarks.reach(self.watermarks, self._observer, marked, node.step, partition, at_us)
            else:
                watermarks.reach_newest(self.watermarks, self.plan, node.step, at_us)
        if self._keeps(node):
            for bad in arrived.bad:
                self.errors.append(bad)
                self._count(f"errors/{node.step}", bad.num_rows)
            rows = 0 if arrived.rows is None else arrived.rows.num_rows
            self.rows_in += rows
            if arrived.shed < 0:  # read again: of these rows, only those that were shed are new
                rows = -arrived.shed
            if not is_constant(node):  # constants are part of the program, not input
                self._count(f"rows/{node.step}", rows)
                self._count(f"shed/{node.step}", arrived.shed)
        return arrived.rows

    def _wants_full_rows(self, scan: str, rows: pa.Table) -> bool:
        """Does a step need the columns that this scan left out, for these rows?"""
        for step in self.levels.full_rows_for.get(scan, ()):
            operator: Any = self.plan.nodes[step].operator
            if operator.requires_full_rows(rows, watermarks.bound(self.spec.watermarks, step)):
                return True
        return False

    def _read(
        self, node: Node, scan: Scan, columns: tuple[str, ...], splits: Sequence[tuple[int, Split]]
    ) -> ReadRows:
        """Read columns of splits; in a fused scan, text that no step reads stays dictionary-encoded."""
        texts = frozenset[str]() if self.batches is None else self.batches.encoded
        numbered = node.step in self.levels.with_origin
        if self.spec.past is None and node.step in self.levels.watermarks.traced:
            partitions = {split.partition for _, split in splits}
            self._partitions[node.step] = min(partitions, default="")
            numbered |= len(partitions) > 1 or node.step in self.levels.watermarks.numbered
        try:
            return read(node.step, scan.source, columns, splits, self.worker.store, texts, numbered)
        except MillpondError as error:
            raise type(error)(
                error.message, detail=error.detail, hint=error.hint, step=node.step, epoch=self.spec.epoch
            ) from error

    def read_table(self, step: str) -> pa.Table | None:
        """The rows of a table at the epoch that a backfill reads, or the changes up to it."""
        node = self.plan.nodes[step]
        scan = node.operator
        assert isinstance(scan, StateScan)
        past = self.spec.past
        if past is None:
            raise InternalError("a table is scanned outside of a backfill", step=node.step)
        splits = [split for step, _, split in self.spec.splits[self.task] if step == node.step]
        if not splits:
            return None
        columns = self.levels.columns[node.step]
        rows = concat([past_rows(past, scan.table, columns, split, self.worker) for split in splits])
        self.rows_in += rows.num_rows
        return rows

    def _given(self, node: Node, result: StepResult) -> pa.Table | None:
        """The output rows of a step, after its watermark was updated from them."""
        if isinstance(node.operator, SetsWatermark):
            self._observe(node, node.operator, result)
        out = result.out
        if out is None:
            return None
        if ORIGIN in out.column_names and not self._passes_origin(node.step):
            out = out.drop_columns([ORIGIN])
        if HASH in out.column_names and node.step not in self.task_plan.keeps_hash:
            return out.drop_columns([HASH])
        return out

    def _passes_origin(self, step: str) -> bool:
        return step in self.levels.with_origin or step in self.levels.watermarks.traced

    @property
    def _observer(self) -> str:
        return f"{self.level}.{self.task}"

    def _observe(self, node: Node, operator: SetsWatermark, result: StepResult) -> None:
        """Record the times of rows that reached a watermark step, by partition."""
        rows = result.out if result.seen is None else result.seen
        if rows is None or not rows.num_rows:
            pass
        elif self.spec.past is not None:
            watermarks.observe_newest(self.watermarks, node.step, operator, rows)
        else:  # also in a part of the plan that does not keep this step: its windows close by it
            before = self.spec.watermarks
            for where, _, some in self._by_partition(node, rows):
                late = result.seen is not None
                watermarks.observe(
                    self.watermarks, self._observer, node.step, operator, some, where, before, late
                )
            if isinstance(operator.rule, Custom) and result.out is not None:
                for where, number, some in self._by_partition(node, result.out):
                    self._of_functions.setdefault((node.step, where), []).append((number, some))
        self._observe_reached(node, operator, result.reached)

    def _observe_reached(self, node: Node, operator: SetsWatermark, rows: pa.Table | None) -> None:
        """Record the times of punctuations: rows that say how far their partition has come."""
        if rows is None or self.spec.past is not None:
            return
        for where, _, some in self._by_partition(node, rows):
            at_us = operator.observe(some)
            if at_us is not None:
                seen = {"max": at_us, "reach": at_us}
                watermarks.add(self.watermarks, self._observer, node.step, operator.rule, where, seen)

    def _call_functions(self) -> None:
        """Call the functions of custom watermarks, with the rows of each partition in order."""
        for (step, where), rows_of_step in sorted(self._of_functions.items()):
            operator: Any = self.plan.nodes[step].operator
            names = self.plan.shape(step).schema.names
            rows = concat([some for _, some in sorted(rows_of_step, key=lambda of: of[0])])
            rows = rows.select([n for n in names if n in rows.column_names])
            entry = watermarks.entry_of(self.spec.watermarks, step, where) or {}
            with naming_step(step, self.spec.epoch):
                seen = operator.rule.call(rows, entry.get("state"), step)
            watermarks.add(self.watermarks, self._observer, step, operator.rule, where, seen)
        self._of_functions = {}

    def _by_partition(self, node: Node, rows: pa.Table) -> Iterator[tuple[tuple[str, str], int, pa.Table]]:
        """Rows by where they come from: ((scan, partition), number of the split, rows)."""
        each = self.levels.watermarks.named(node.step)
        if each is None or not each.by_partition:
            yield (watermarks.ANY, watermarks.ANY), 0, rows
        elif ORIGIN not in rows.column_names:
            (scan,) = each.scans
            yield (scan, self._partitions[scan]), 0, rows
        else:
            splits = {n: (scan, split.partition) for scan, n, split in self.spec.splits[self.task]}
            numbers = rows.column(ORIGIN).to_numpy() >> ORIGIN_BITS
            starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()  # rows are in order of splits
            for start, end in itertools.pairwise([*starts, len(numbers)]):
                number = int(numbers[start])
                yield splits[number], number, rows.slice(start, end - start)

    def result(self, node: Node, arrived: Arrived | None = None) -> StepResult:
        """Run a step on its inputs; NOTHING if it has no input and is not due."""
        arrived = self.arrived if arrived is None else arrived
        inputs: list[pa.Table | None] = []
        for index, source in enumerate(node.inputs):
            if self.levels.level_of[source] == self.level and (node.step, index) not in arrived:
                delta = self.asked(node, index, self.outputs.get(source))
                placement = placements(node, self.levels.local_lookups)[index]
                if delta is not None and placement.kind == "hash":
                    delta = placed(delta, node, index, placement.key)
                inputs.append(delta)
            else:
                received = arrived.get((node.step, index))
                rows = received_rows(received, node.binding.placements[index]) if received else None
                prepared = isinstance(node.operator, PreparesInput)  # already prepared by the sender
                inputs.append(rows if prepared else self.asked(node, index, rows))
        if all(i is None for i in inputs) and not self._due(node):
            return NOTHING
        ctx = self.context(node)
        result = node.operator.apply(ctx, node.binding, tuple(inputs))
        if self.spec.checks:
            checks.check_result(node, result, ctx)
        return result

    def context(self, node: Node) -> StepContext:
        everywhere = all(p.kind == "here" for p in node.binding.placements)
        return StepContext(self, node, everywhere or isinstance(node.operator, RunsInOneTask))

    def asked(self, node: Node, index: int, delta: pa.Table | None) -> pa.Table | None:
        """An input with only the columns that the step reads, and the origin only if the step needs it."""
        if delta is None:
            return None
        columns = delta.column_names
        read = self.levels.inputs[node.step, index]
        known = node.reads[index] if node.reads else None
        origin = (node.step, index) in self.levels.origins or (
            (node.step, index) in self.levels.watermarks.inputs
        )
        names = [
            n
            for n in columns
            if (n in read and (known is None or n in known)) or (n in OWN_COLUMNS and (n != ORIGIN or origin))
        ]
        if len(names) == len(columns):
            return delta
        return delta.select(names or [n for n in columns if n != ORIGIN][:1])

    def _due(self, node: Node) -> bool:
        if not isinstance(node.operator, FiresByTime):
            return False
        earliest = {}
        for table in node.binding.tables:
            bucket = self.listing.earliest_bucket(table.name)
            if bucket is not None:
                earliest[table.name] = bucket
        after = watermarks.bounds(self.heard)
        return bool(earliest) and node.operator.due(node.binding, earliest, after, self.spec.now_us)

    def _keeps(self, node: Node) -> bool:
        """Does this task write the state, counts and errors of a step that other tasks run as well?"""
        if self.part is not None:
            return node.step in self.part.keeps
        return self.task == 0 or node.step not in self.levels.local_lookups.shared

    def keep(self, node: Node, result: StepResult) -> None:
        self.needs_full_rows = self.needs_full_rows or result.needs_full_rows
        if not self._keeps(node):
            return
        specs = {t.name: t for t in node.binding.tables}
        for table, bucket in result.drops:
            self.drops[table] = max(bucket, self.drops.get(table, bucket))
        for change in result.changes:
            self._write(specs[change.table], change)
        for name, count in result.counts.items():
            self._count(f"{name}/{node.step}", count)
        if result.errors is not None and result.errors.num_rows:
            step = pa.array([node.step] * result.errors.num_rows, pa.string())
            self.errors.append(result.errors.add_column(0, "step", step))
            self._count(f"errors/{node.step}", result.errors.num_rows)

    def _count(self, name: str, more: int) -> None:
        if more:
            self.counts[name] = self.counts.get(name, 0) + int(more)

    def _write(self, spec: TableSpec, change: Change) -> None:
        if change.rows.num_rows == 0:
            return
        if spec.time is None:
            bucket = self.spec.log_buckets.get(spec.name)
            self.writer.add(spec, change.rows, bucket=bucket, presorted=change.presorted)
            return
        buckets = spec.buckets(change.rows)
        spans = self.spans.get(spec.name)
        buckets = buckets if spans is None else coalesced_buckets.placed(buckets, spans)
        ended = self.drops.get(spec.name)
        for bucket in distinct(buckets):
            if ended is not None and bucket < ended:
                continue  # the same epoch drops this bucket
            rows = change.rows.filter(pa.array(buckets == bucket))
            self.writer.add(spec, rows, bucket=int(bucket), presorted=change.presorted)

    def write_file(self) -> tuple[tuple[RunRef, ...], int]:
        """Write this task's file; returns the run references for the manifest, and the bytes written."""
        if self.needs_full_rows:
            return (), 0
        if self.errors:
            rows = consolidate(concat(self.errors))
            self.errors_ended = bool((weights(rows) < 0).any())
            self._write(ERRORS_SPEC, Change(ERRORS, rows))
        buffers, infos = self.writer.finish()
        if not infos:
            return (), 0
        spec = self.spec
        name = run_names.new_name(spec.token, spec.epoch, self.level, self.task)
        run_names.put_run(self.worker.store, name, buffers)
        refs = tuple(
            RunRef(
                i.table, name, n, i.bucket, spec.epoch, spec.epoch, i.rows, i.bytes, i.h_min, i.h_max, "delta"
            )
            for n, i in enumerate(infos)
        )
        return refs, sum(i.bytes for i in infos)

    # -- sending -----------------------------------------------------------

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Data frames for later levels: (level, task, frame)."""
        for edge, target, rows in self.outgoing():
            assert isinstance(rows, pa.Table)
            for sequence, payload in enumerate(frames.encode_table(rows)):
                to = (edge.to_level, target)
                yield (
                    *to,
                    frames.make(frames.DATA, to, (self.level, self.task), edge.id, sequence, *payload),
                )

    def outgoing(self) -> Iterator[tuple[Edge, int, pa.Table | Picked]]:
        """The rows to send, as (edge, task, rows); positions of rows only within one process."""
        for send in self.task_plan.sends:
            for target, rows in send.run(self):
                yield send.edge, target, rows
