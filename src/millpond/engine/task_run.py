"""One task of one level while it runs: every node in order, what they keep, what goes to whom.

It sees only the spec, the rows that it was sent and the store; frames are `engine.level`'s business.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, ORIGIN, WEIGHT, consolidate, weights
from millpond.engine import checks, frames, over, pieces, watermarks
from millpond.engine.at_once import AtOnce
from millpond.engine.blame import blamed
from millpond.engine.parts import Part
from millpond.engine.past import past_rows
from millpond.engine.placing import (
    concat,
    cut_by_owner,
    kept,
    placed,
    prepared,
    received_rows,
    whole,
    with_hash,
)
from millpond.engine.reading import ReadRows, read
from millpond.engine.shared_work import SharedWork
from millpond.engine.spec import EpochSpec
from millpond.engine.together import Together
from millpond.engine.worker import Worker
from millpond.errors import InternalError, MillpondError
from millpond.operators.filter import Filter
from millpond.operators.map import Map
from millpond.operators.materialize import ERRORS_SPEC
from millpond.operators.operator import NOTHING, Change, Ready, Result
from millpond.operators.scan import Scan
from millpond.operators.state_scan import StateScan
from millpond.ordering import distinct
from millpond.plan.backfill import is_constant
from millpond.plan.levels import Edge, Levels, placements
from millpond.plan.nodes import Node, Plan
from millpond.sources.source import Split
from millpond.state.listing import Listing, live_runs
from millpond.state.packed import PackedWriter
from millpond.state.retention import ERRORS
from millpond.state.run_ref import RunRef
from millpond.state.store import Put
from millpond.state.table import Table
from millpond.state.table_spec import TableSpec

LAST_HASH = (1 << 64) - 1
OWN_COLUMNS = (WEIGHT, HASH, ORIGIN)  # beside those of users


class StepContext:
    """What an operator may ask for during its step; see `operators.operator.Context`."""

    def __init__(self, task: TaskRun, node: Node, everywhere: bool) -> None:
        self._task = task
        self._node = node
        self.step = node.step
        self.epoch = task.spec.epoch
        self.now_us = task.spec.now_us
        self.task = task.task
        self.h_min = 0 if everywhere else task.h_min
        self.h_max = LAST_HASH if everywhere else task.h_max
        self.wanted = node.step in task.read_steps
        self.filling = task.spec.past is not None  # the state of new steps, from what the pond holds
        self._near = node.step in task.levels.near.lookups

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
            buckets = buckets if spans is None else over.kept_in(buckets, spans)
            runs = [r for r in runs if r.bucket in buckets]
        if below_bucket is not None:
            runs = [r for r in runs if r.bucket is not None and r.bucket < below_bucket]
        if everywhere or self._near:
            return Table(spec, runs, self._task.worker.open_file)
        return Table(spec, runs, self._task.worker.open_file, self.h_min, self.h_max)

    def watermark_before(self, step: str) -> int | None:
        return watermarks.bound(self._task.spec.watermarks, step)

    def watermark(self, step: str) -> int | None:
        return watermarks.bound(self._task.heard, step)


class TaskRun:
    """The state of one running task; lives for one call."""

    def __init__(
        self,
        spec: EpochSpec,
        level: int,
        task: int,
        worker: Worker,
        listing: Listing | None = None,
        part: Part | None = None,
        alone: bool = False,
    ) -> None:
        """`listing` is that of the spec, where somebody has it open; `part` is what is run of the plan.

        With `alone` this task is all there is of its level, and of the others.
        """
        self.started = time.perf_counter_ns()
        self.spec = spec
        self.level = level
        self.task = task
        self.worker = worker
        self.attempt = os.urandom(8).hex()
        self.plan: Plan
        self.levels: Levels
        self.plan, self.levels = worker.plan(spec.catalog, spec.whole, spec.near)
        self.steps = self.levels.steps[level] if part is None else part.of(self.levels).steps[level]
        self.part = part
        self.at_once = AtOnce(self) if alone else None
        if listing is None:
            listing = Listing(live_runs(spec.pages, spec.recent, spec.gone, worker.pages))
        self.listing = listing
        worker.trim(self.listing)
        self.heard: dict[str, Any] = dict(spec.watermarks)  # the same in every task of a level
        self.watermarks: dict[str, Any] = dict(spec.watermarks)  # and what this task saw itself
        past = spec.past
        self._rises = past is None or past.rises is not None
        if past is not None and past.rises is not None:
            watermarks.merge(self.watermarks, past.rises)
        self.spans: Mapping[str, tuple[int, ...]] = {} if past is None else past.spans
        bounds = hashing.bounds(spec.parallelism[level])
        self.h_min = int(bounds[task])
        self.h_max = int(bounds[task + 1]) - 1 if task + 1 < len(bounds) else LAST_HASH
        self.writer = PackedWriter()
        self.drops: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.errors: list[pa.Table] = []
        self.errors_ended = False  # does one take back a row of an earlier epoch, perhaps?
        self.step_us: dict[str, int] = {}
        self.rows_in = 0
        self.whole = False  # did a step ask for whole rows?
        self.shrunk: set[str] = set()  # steps whose rows their reader has prepared, piece by piece
        self._in_pieces = False  # are the rows at hand only a piece of what a step gives?
        self.together = self._together_at(level)
        self.shared = SharedWork(self.plan, self.levels, self.together)
        self.read_steps = self.together.read

    def _together_at(self, level: int) -> Together:
        spec = self.spec
        return self.worker.together(spec.catalog, level, spec.whole, spec.near, self.part)

    def hear(self, headers: Mapping[tuple[int, int], frames.Header]) -> None:
        """Take in what the tasks before this one know of time."""
        for key in sorted(headers):
            watermarks.merge(self.watermarks, headers[key].watermarks)
        if self._rises:
            self.heard = dict(self.watermarks)

    # -- running nodes -----------------------------------------------------

    def run_nodes(self, received: Mapping[int, list[pa.Table]]) -> dict[str, pa.Table]:
        """Run this level's nodes in order; the output deltas by step."""
        outputs: dict[str, pa.Table] = {}
        arrived = {
            consumer: received[edge.id]
            for edge in self.levels.edges
            if edge.to_level == self.level and edge.id in received
            for consumer in edge.consumers
        }
        ran: set[str] = set()
        for step in self.steps:
            if step in ran:
                continue
            node = self.plan.nodes[step]
            if (
                self.at_once is not None
                and step in self.together.picking
                and self.at_once.pick(node, outputs)
            ):
                continue
            if self.at_once is not None and step in self.together.alike:
                ran.update(self.together.alike[step])
                self.at_once.apply(self.together.alike[step], arrived)
                continue
            behind = self.together.behind.get(step, ())
            if behind and sum(split.rows for _, split in self._splits(step)) >= pieces.ROWS_MIN:
                outputs |= self._by_piece(node, behind, outputs)
                ran.update(behind)
                continue
            started = time.perf_counter_ns()
            with blamed(step, self.spec.epoch):
                if isinstance(node.operator, Scan):
                    out = self._scan(node, node.operator, self._splits(step))
                elif isinstance(node.operator, StateScan):
                    out = self._held(node, node.operator)
                else:
                    out = self._apply(node, outputs, arrived)
            if out is not None and out.num_rows:
                outputs[step] = out
            self.step_us[step] = (time.perf_counter_ns() - started) // 1000
        return outputs

    def _by_piece(
        self, scan: Node, behind: tuple[str, ...], before: Mapping[str, pa.Table]
    ) -> dict[str, pa.Table]:
        """Run a scan and the steps behind it over one piece after the other; what others read of them."""
        wanted = pieces.read_outside(self.plan, (scan.step, *behind))
        edges = self.levels.edges if self.at_once is None else ()
        outputs = {step: pieces.Kept(self.plan, edges, step, self.spec.epoch) for step in wanted}
        ready = {step: self._ready(self.plan.nodes[step], before) for step in behind if self._has_sides(step)}
        results: dict[str, list[Result]] = {step: [first.result] for step, first in ready.items()}
        self._in_pieces = True
        for group in pieces.grouped(self._splits(scan.step)):
            here: dict[str, pa.Table] = {}
            self.shared.forget()
            for step in (scan.step, *behind):
                node = self.plan.nodes[step]
                started = time.perf_counter_ns()
                with blamed(step, self.spec.epoch):
                    if isinstance(node.operator, Scan):
                        out = self._scan(node, node.operator, group)
                    else:
                        result = self._of_piece(node, here, ready.get(step))
                        results.setdefault(step, []).append(replace(result, out=None))
                        out = self._given(node, result)
                if out is not None and out.num_rows:
                    here[step] = out
                    if step in wanted:
                        outputs[step].add(self._narrow(step, out))
                self.step_us[step] = self.step_us.get(step, 0) + (time.perf_counter_ns() - started) // 1000
        self._in_pieces = False
        for step, parts in results.items():
            self.keep(self.plan.nodes[step], pieces.summed(parts))
        self.shrunk |= {step for step, found in outputs.items() if found.shrunk}
        return {step: whole(found.all()) for step, found in outputs.items() if found}

    def _has_sides(self, step: str) -> bool:
        return len(self.plan.nodes[step].inputs) > 1 and hasattr(self.plan.nodes[step].operator, "ready")

    def _ready(self, node: Node, before: Mapping[str, pa.Table]) -> Ready:
        """A step made ready for the pieces of its first input, by what its others hold."""
        sides = [self._asked(node, 1 + n, before.get(source)) for n, source in enumerate(node.inputs[1:])]
        with blamed(node.step, self.spec.epoch):
            found: Ready = node.operator.ready(self.context(node), node.binding, tuple(sides))  # type: ignore[attr-defined]
        if self.spec.checks:
            checks.check_result(node, found.result, self.context(node))
        return found

    def _of_piece(self, node: Node, here: Mapping[str, pa.Table], ready: Ready | None) -> Result:
        """What a step makes of a piece."""
        if ready is None:
            return self.result(node, here, {})
        delta = self._asked(node, 0, here.get(node.inputs[0]))
        result = NOTHING if delta is None else ready.take(delta)
        if self.spec.checks:
            checks.check_result(node, result, self.context(node))
        return result

    def _narrow(self, step: str, rows: pa.Table) -> pa.Table:
        """The columns that a step must give; rows that were wanted whole have more."""
        asked = self.levels.columns[step]
        names = [n for n in rows.column_names if n in asked or n in OWN_COLUMNS]
        return rows.select(names or rows.column_names[:1])

    def _splits(self, step: str) -> list[tuple[int, Split]]:
        """What this task reads of a source, with the place of each in the admission."""
        return [(number, split) for of, number, split in self.spec.splits[self.task] if of == step]

    def _scan(self, node: Node, scan: Scan, splits: Sequence[tuple[int, Split]]) -> pa.Table | None:
        found = self._read(node, scan, self.levels.columns[node.step], splits)
        if found.rows is not None and self._wants_whole(node.step, found.rows):
            found = self._read(node, scan, tuple(node.binding.shape.schema.names), splits)
        for at_us in found.bounds:
            watermarks.reach(self.watermarks, self.plan, node.step, at_us)
        if self._keeps(node):
            for bad in found.bad:
                self.errors.append(bad)
                self._count(f"errors/{node.step}", bad.num_rows)
            rows = 0 if found.rows is None else found.rows.num_rows
            self.rows_in += rows
            if not is_constant(node):  # constants are part of the program, not input
                self._count(f"rows/{node.step}", rows)
        return found.rows

    def _wants_whole(self, scan: str, rows: pa.Table) -> bool:
        """Do rows of a scan that left out columns need them all the same?"""
        for step in self.levels.whole_for.get(scan, ()):
            operator: Any = self.plan.nodes[step].operator
            if operator.wants_whole(rows, watermarks.bound(self.spec.watermarks, step)):
                return True
        return False

    def _read(
        self, node: Node, scan: Scan, columns: tuple[str, ...], splits: Sequence[tuple[int, Split]]
    ) -> ReadRows:
        """What splits give for some columns; in pieces, texts that nobody looks at stay encoded."""
        texts = self.together.texts.get(node.step, frozenset()) if self._in_pieces else frozenset()
        numbered = node.step in self.levels.with_origin
        try:
            return read(node.step, scan.source, columns, splits, self.worker.store, texts, numbered)
        except MillpondError as error:
            raise type(error)(
                error.message, detail=error.detail, hint=error.hint, step=node.step, epoch=self.spec.epoch
            ) from error

    def _held(self, node: Node, scan: StateScan) -> pa.Table | None:
        """Rows of a table of the epoch that a backfill starts from, or what changed in it up to there."""
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

    def _apply(
        self, node: Node, outputs: Mapping[str, pa.Table], arrived: Mapping[tuple[str, int], list[pa.Table]]
    ) -> pa.Table | None:
        result = self.result(node, outputs, arrived)
        self.keep(node, result)
        return self._given(node, result)

    def _given(self, node: Node, result: Result) -> pa.Table | None:
        """The rows that a step gives, looked at for their time."""
        out = result.out
        if out is None:
            return None
        if hasattr(node.operator, "observe"):
            watermarks.observe(self.watermarks, node, out)
        if HASH in out.column_names and node.step not in self.together.in_order.carrying:
            return out.drop_columns([HASH])
        return out

    def result(
        self, node: Node, outputs: Mapping[str, pa.Table], arrived: Mapping[tuple[str, int], list[pa.Table]]
    ) -> Result:
        """What a step makes of its inputs; nothing if it has none and nothing is due."""
        inputs: list[pa.Table | None] = []
        for index, source in enumerate(node.inputs):
            if self.levels.level_of[source] == self.level and (node.step, index) not in arrived:
                delta = self._asked(node, index, outputs.get(source))
                placement = placements(node, self.levels.near)[index]
                if delta is not None and placement.kind == "hash":
                    delta = placed(delta, node, index, placement.key)
                inputs.append(delta)
            else:
                found = arrived.get((node.step, index))
                rows = received_rows(found, node.binding.placements[index]) if found else None
                prepared = hasattr(node.operator, "prepare")  # by the sender: as the step itself made them
                inputs.append(rows if prepared else self._asked(node, index, rows))
        if all(i is None for i in inputs) and not self._due(node):
            return NOTHING
        ctx = self.context(node)
        mask = self.shared.mask(node, outputs) if isinstance(node.operator, Filter) else None
        rows = self.shared.projected(node, outputs) if isinstance(node.operator, Map) else None
        if mask is not None and inputs[0] is not None:
            in_order = None if self._in_pieces else self.shared.in_order(node, outputs)
            result = Result(kept(inputs[0], mask) if in_order is None else in_order.kept(inputs[0], mask))
        elif rows is not None:
            result = Result(rows)
        else:
            result = node.operator.apply(ctx, node.binding, tuple(inputs))
        if self.spec.checks:
            checks.check_result(node, result, ctx)
        return result

    def context(self, node: Node) -> StepContext:
        everywhere = all(p.kind == "here" for p in node.binding.placements)
        return StepContext(self, node, everywhere or getattr(node.operator, "alone", False))

    def _asked(self, node: Node, index: int, delta: pa.Table | None) -> pa.Table | None:
        """An input as the step reads it: no columns of others, and the origin for those who asked."""
        if delta is None:
            return None
        given = delta.column_names
        read = self.levels.inputs[node.step, index]
        known = node.reads[index] if node.reads else None
        origin = (node.step, index) in self.levels.origins
        names = [
            n
            for n in given
            if (n in read and (known is None or n in known)) or (n in OWN_COLUMNS and (n != ORIGIN or origin))
        ]
        if len(names) == len(given):
            return delta
        return delta.select(names or [n for n in given if n != ORIGIN][:1])

    def _due(self, node: Node) -> bool:
        due = getattr(node.operator, "due", None)
        if due is None:
            return False
        earliest = {}
        for table in node.binding.tables:
            bucket = self.listing.earliest_bucket(table.name)
            if bucket is not None:
                earliest[table.name] = bucket
        after = {s: state["bound"] for s, state in self.heard.items()}
        return bool(earliest) and bool(due(node.binding, earliest, after, self.spec.now_us))

    def _keeps(self, node: Node) -> bool:
        """Is it this task that writes what a step keeps, counts and fails on, where others run it as well?"""
        if self.part is not None:
            return node.step in self.part.keeps
        return self.task == 0 or node.step not in self.levels.near.shared

    def keep(self, node: Node, result: Result) -> None:
        self.whole = self.whole or result.whole
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
        buckets = buckets if spans is None else over.placed(buckets, spans)
        ended = self.drops.get(spec.name)
        for bucket in distinct(buckets):
            if ended is not None and bucket < ended:
                continue  # it is dropped by the very epoch that writes it
            rows = change.rows.filter(pa.array(buckets == bucket))
            self.writer.add(spec, rows, bucket=int(bucket), presorted=change.presorted)

    def write_file(self) -> tuple[tuple[RunRef, ...], int]:
        """Put this task's one file; the refs that a manifest may name."""
        if self.whole:
            return (), 0
        if self.errors:
            rows = consolidate(concat(self.errors))
            self.errors_ended = bool((weights(rows) < 0).any())
            self._write(ERRORS_SPEC, Change(ERRORS, rows))
        buffers, infos = self.writer.finish()
        if not infos:
            return (), 0
        spec = self.spec
        name = f"runs/{spec.token}/{spec.epoch:016d}-{self.level}-{self.task}-{os.urandom(8).hex()}"
        if self.worker.store.put_new(name, buffers) is not Put.WON:
            raise InternalError("a random run name was already taken", detail=name)
        refs = tuple(
            RunRef(
                i.table, name, n, i.bucket, spec.epoch, spec.epoch, i.rows, i.bytes, i.h_min, i.h_max, "delta"
            )
            for n, i in enumerate(infos)
        )
        return refs, sum(i.bytes for i in infos)

    # -- sending -----------------------------------------------------------

    def send(self, outputs: Mapping[str, pa.Table]) -> Iterator[tuple[int, int, bytes]]:
        """Data frames for later levels: (level, task, frame)."""
        for edge, target, piece in self.outgoing(outputs):
            for sequence, payload in enumerate(frames.encode_table(piece)):
                to = (edge.to_level, target)
                yield (
                    *to,
                    frames.make(frames.DATA, to, (self.level, self.task), edge.id, sequence, *payload),
                )

    def outgoing(
        self, outputs: Mapping[str, pa.Table], *, together: bool = False
    ) -> Iterator[tuple[Edge, int, pa.Table]]:
        """What goes to which task over which edge; `together` if that task is this process."""
        depth = len(self.spec.parallelism)
        for edge in self.levels.edges:
            if edge.from_level != self.level or edge.producer not in outputs or edge.to_level >= depth:
                continue
            if self.part is not None and self.part.steps.isdisjoint(step for step, _ in edge.consumers):
                continue
            for target, piece in self._route(edge, outputs[edge.producer], together):
                if piece.num_rows:
                    yield edge, target, piece

    def _route(self, edge: Edge, delta: pa.Table, together: bool) -> Iterator[tuple[int, pa.Table]]:
        targets = self.spec.parallelism[edge.to_level]
        shrunk = edge.producer in self.shrunk
        if not shrunk:
            delta = delta.select([c for c in (*edge.columns, "_w", "_h") if c in delta.column_names])
        if edge.kind == "broadcast":
            yield from ((t, delta) for t in range(targets))
            return
        if edge.kind == "forward":
            yield self.task % targets, delta
            return
        if edge.prepared_by and self.at_once and edge.prepared_by in self._together_at(edge.to_level).alike:
            yield 0, delta
            return
        consumer = self.plan.nodes[edge.consumers[0][0]] if edge.prepared_by else None
        if consumer is not None:
            with blamed(consumer.step, self.spec.epoch):
                delta = prepared(delta, consumer, edge.consumers[0][1], shrunk)
        elif "_h" not in delta.column_names:
            delta = with_hash(delta, edge.key)
        spare = [delta.column(k) for k in edge.key if k in delta.column_names]
        bare = not together and len(spare) == len(edge.key) and hashing.is_injective(spare)
        for target, piece in cut_by_owner(delta, targets):
            # The hash of one integer is cheaper to compute again than to send.
            yield target, piece.drop_columns(["_h"]) if bare else piece
