"""Filling new steps from what a pond holds, for one commit.

Laws 1 and 2: what comes out is the state that the new steps would have had,
had they been there from the beginning, at the very epoch that all old views
show; and nothing of it is visible before the commit that names it.

The plan of a backfill (`plan.backfill`) is run by the engine like any other, in
chunks of bounded size, here and now, while the pond waits (`engine.filling` is the
other way): each chunk is an epoch that is not committed, and its runs are the state
that the next one finds.  When all rows are in, watermarks
are told, so that windows which are over close; runs are merged, and those of
the new steps become one delta of the epoch.  Whatever else was written is
garbage, and so is all of it after a crash.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond import delta as deltas
from millpond.control.admission import spread
from millpond.engine import watermarks
from millpond.engine.compactor import compact
from millpond.engine.engine import Engine
from millpond.engine.error_rows import by_bucket
from millpond.engine.over import spans_of
from millpond.engine.spec import EpochSpec, Past, Report
from millpond.engine.whole import Epochs
from millpond.engine.worker import Worker
from millpond.errors import InternalError, UnavailableError
from millpond.operators.materialize import ERRORS_SPEC
from millpond.operators.scan import Scan
from millpond.operators.state_scan import StateScan
from millpond.plan import codec
from millpond.plan.backfill import BackfillPlan
from millpond.plan.levels import cut
from millpond.plan.tables import table_specs
from millpond.sources.source import Split
from millpond.sources.unavailable import named
from millpond.state.compaction import FAN_IN, UNIT_BYTES, plan_merges, unit
from millpond.state.filling import Cut
from millpond.state.listing import Listing
from millpond.state.manifest import Manifest
from millpond.state.packed import PackedWriter
from millpond.state.plan_file import digest
from millpond.state.retention import ERRORS
from millpond.state.run_ref import RunRef
from millpond.state.snapshot import concat_runs
from millpond.state.store import Put
from millpond.state.table import KeySet, Table
from millpond.state.table_spec import TableSpec

SPLITS_PER_TASK = 4


@dataclass(frozen=True)
class Progress:
    """How far a backfill is; `total` is an estimate from above."""

    steps: tuple[str, ...]  # that are being filled
    rows: int
    total: int
    chunks: int


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class Filled:
    """The state of the new steps, ready to be committed."""

    runs: tuple[RunRef, ...]
    counts: Mapping[str, int]
    watermarks: Mapping[str, Any]
    positions: Mapping[str, Any]  # of constant sources, which are in whole
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """Where and how a backfill runs."""

    worker: Worker
    engine: Engine
    base: Manifest
    epoch: int  # that will hold it
    token: int
    now_us: int
    parallelism: int
    rows_max: int  # of a chunk, about
    bytes_max: int
    checks: bool = False
    options: Mapping[str, Any] | None = field(default=None, repr=False)
    on_progress: OnProgress | None = None
    stopped: Callable[[], bool] = lambda: False  # asked before every chunk


class StoppedError(UnavailableError):
    """Somebody stopped the pond: the backfill begins anew when it runs again."""


def backfill(setting: Setting, found: BackfillPlan, new: frozenset[str]) -> Filled:
    """Compute the state of the new steps of a change by their plan; nothing where there are none."""
    if not new:
        return Filled((), {}, {}, {}, {})
    return _Backfill(setting, found, new).run()


def errors_taken_back(
    worker: Worker, base: Manifest, token: int, epoch: int, steps: frozenset[str]
) -> tuple[RunRef, ...]:
    """A run that ends the error rows of steps that go, if they have any."""
    runs = Listing.of(base, worker.pages).runs(ERRORS)
    if not steps or not runs:
        return ()
    keys = KeySet.of(pa.table({"step": pa.array(sorted(steps), pa.string())}), ERRORS_SPEC.key)
    found = {}
    for bucket, own in by_bucket(runs).items():
        held = Table(ERRORS_SPEC, own, worker.open_file).lookup(keys).table
        found[bucket] = deltas.negate(held.select([*ERRORS_SPEC.schema.names, "_w"]))
    return write_errors(worker, found, token, epoch)


class _Backfill:
    def __init__(self, setting: Setting, found: BackfillPlan, new: frozenset[str]) -> None:
        self.setting = setting
        self._epochs = Epochs(setting.engine)
        self.new = new
        self.found = found
        self.plan = found.plan
        self.levels = cut(found.plan)
        self.specs = table_specs(found.plan)
        self.past = Listing.of(setting.base, setting.worker.pages)
        self.spans = spans_of(found.plan, setting.base.watermarks)  # all that is over ends in one step
        self.runs: list[RunRef] = []
        self.counts: dict[str, int] = {}
        self.marks: dict[str, Any] = {}
        self.positions: dict[str, Any] = {}
        self.chunks = 0
        self.rows = 0
        self._raw_plan = codec.dumps(self.plan)
        self.catalog = f"runs/{setting.token}/{setting.epoch:016d}-p-0-{digest(self._raw_plan)}"

    def run(self) -> Filled:
        setting = self.setting
        started = time.perf_counter()
        setting.worker.store.put_new(self.catalog, self._raw_plan)
        setting.worker.know_plan(self.catalog, self.plan)
        try:
            found = self.found
            parts = [
                [s for step in steps for s in self._splits(step)] for steps in (found.first, found.second)
            ]
            parts.append(
                [
                    s
                    for step in (*found.tables, *found.sources, *found.constants)
                    if step not in (*found.first, *found.second)
                    for s in self._splits(step)
                ]
            )
            total = sum(split.rows for part in parts for _, split in part)
            for part in parts:
                for chunk in self._chunks(part):
                    self._run(chunk, {})
                    self.rows += sum(split.rows for _, split in chunk)
                    self._tell(total)
                    self._merge()
            self._settle()
            runs = self._finish()
        finally:
            setting.worker.forget_plan(self.catalog)
        metrics = {
            "steps": sorted(self.new),
            "rows": self.rows,
            "chunks": self.chunks,
            "ms": round((time.perf_counter() - started) * 1000, 3),
        }
        marks = {step: mark for step, mark in self.marks.items() if step in self.new}
        return Filled(runs, self.counts, marks, self.positions, metrics)

    # -- what is read -----------------------------------------------------------------

    def _splits(self, step: str) -> Iterator[tuple[str, Split]]:
        rows = max(1, self.setting.rows_max // (SPLITS_PER_TASK * self.setting.parallelism))
        operator = self.plan.nodes[step].operator
        if isinstance(operator, StateScan):
            made = cut_scan(step, self.past.runs(operator.table.name), rows, self.setting.bytes_max)
            yield from ((step, split_of(made, number)) for number in range(made[1]))
        elif isinstance(operator, Scan):
            source, base = operator.source, self.setting.base
            if step in self.found.constants:
                with named(step):
                    splits = source.poll(None, None, rows).splits
                self.positions[step] = source.advance(None, splits, ()).position
                yield from ((step, split) for split in splits)
                return
            own = source.table(step)
            seen = None
            if own is not None:
                table = Table(own, self.past.runs(own.name), self.setting.worker.open_file)
                seen = table.scan().select(own.schema.names)
            with named(step):
                yield from ((step, split) for split in source.history(base.positions.get(step), seen, rows))

    def _chunks(self, splits: list[tuple[str, Split]]) -> Iterator[list[tuple[str, Split]]]:
        chunk: list[tuple[str, Split]] = []
        rows = size = 0
        for step, split in splits:
            full = rows + split.rows > self.setting.rows_max or size + split.bytes > self.setting.bytes_max
            if chunk and full:
                yield chunk
                chunk, rows, size = [], 0, 0
            chunk.append((step, split))
            rows, size = rows + split.rows, size + split.bytes
        if chunk:
            yield chunk

    # -- one chunk ----------------------------------------------------------------------

    def _run(self, chunk: list[tuple[str, Split]], marks: Mapping[str, Any]) -> None:
        setting = self.setting
        if setting.stopped():
            raise StoppedError("the pond was stopped while views were filled")
        by_step = {step: [s for _, s in part] for step, part in groupby(chunk, key=lambda pair: pair[0])}
        first = max(1, min(setting.parallelism, len(chunk)))
        base = setting.base
        spec = EpochSpec(
            setting.worker.store.uri,
            self.catalog,
            setting.epoch + self.chunks,
            setting.token,
            setting.now_us,
            (first, *[setting.parallelism] * (self.levels.count - 1)),
            spread(by_step, first),
            (),
            tuple(self.runs),
            (),
            marks,
            base.roots,
            setting.checks,
            options=dict(setting.options or {}),
            past=replace(Past.of(base), spans=self.spans),
        )
        self._take(self._epochs.run(spec), spec.epoch)
        self.chunks += 1

    def _take(self, reports: list[Report], epoch: int) -> None:
        """What a chunk wrote becomes the state that the next one finds."""
        drops: dict[str, int] = {}
        fresh: list[RunRef] = []
        for report in reports:
            watermarks.merge(self.marks, report.watermarks)
            drops.update(report.drops)
            fresh += report.runs
            for name, count in report.counts.items():
                if name.partition("/")[2] in self.new:
                    self.counts[name] = self.counts.get(name, 0) + count
        self.runs += [r for r in fresh if r.table != ERRORS]
        self.runs += self._own_errors([r for r in fresh if r.table == ERRORS], epoch)
        self.runs = [r for r in self.runs if r.bucket is None or r.bucket >= drops.get(r.table, r.bucket)]

    def _own_errors(self, runs: list[RunRef], epoch: int) -> tuple[RunRef, ...]:
        """Error rows of the new steps; what old steps could not do is on record already."""
        if not runs:
            return ()
        rows = own_errors(runs, self.new, self.setting.worker)
        setting = self.setting
        return write_errors(setting.worker, {setting.now_us: rows}, setting.token, setting.epoch, at=epoch)

    def _merge(self) -> None:
        """Keep lookups cheap however many chunks there are."""
        for job in plan_merges(self.runs, fan_in=FAN_IN, unit_bytes=UNIT_BYTES):
            self._replace(job)

    def _replace(self, job: Any) -> tuple[RunRef, ...]:
        setting = self.setting
        spec = self.specs[job.table]
        options = dict(setting.options or {})
        added = compact(job, spec, setting.worker, setting.engine, setting.token, setting.epoch, options)
        inputs = set(job.refs)
        self.runs = [r for r in self.runs if r not in inputs] + list(added)
        return added

    # -- the end -----------------------------------------------------------------------

    def _settle(self) -> None:
        """Time has come as far as it has: what is over by the watermarks ends."""
        for step in self.found.first:
            owed = f"{step.removesuffix('!late')}/owed"
            spec, runs = self.specs[owed], [r for r in self.runs if r.table == owed]
            left = Table(spec, runs, self.setting.worker.open_file).scan(list(spec.key))
            if left.num_rows:
                raise InternalError(
                    "rows that were late are not among those that were read again",
                    detail=f"{left.num_rows} of them, in {owed}",
                    step=step.removesuffix("!late"),
                )
        if not any(ref.bucket is not None for ref in self.runs):
            return  # nothing waits for time
        marks = dict(self.setting.base.watermarks)
        watermarks.merge(marks, {s: m for s, m in self.marks.items() if s in self.new})
        self._run([], marks)

    def _finish(self) -> tuple[RunRef, ...]:
        """The runs of the new steps, each row once, as one delta of the epoch."""
        own = {t.name for step in self.new for t in self.plan.nodes[step].binding.tables} | {ERRORS}
        self.runs = [r for r in self.runs if r.table in own]
        for job in plan_merges(self.runs, unit_bytes=UNIT_BYTES, everything=True):
            self._replace(job)
        epoch = self.setting.epoch
        return tuple(replace(r, lo=epoch, hi=epoch, kind="delta") for r in self.runs)

    def _tell(self, total: int) -> None:
        if self.setting.on_progress is not None:
            steps = tuple(sorted(self.new))
            self.setting.on_progress(Progress(steps, self.rows, max(total, self.rows), self.chunks))


def cut_scan(step: str, runs: Sequence[RunRef], rows: int, bytes_max: int) -> Cut:
    """How a scan of runs is cut into hash ranges of about so many rows."""
    held, size = sum(ref.rows for ref in runs), sum(ref.bytes for ref in runs)
    count = max(1, -(-held // rows), -(-size // bytes_max)) if held else 0
    return step, count, held // max(1, count), size // max(1, count)


def split_of(made: Cut, number: int) -> Split:
    """One hash range of a scan."""
    _, count, rows, size = made
    h_min, h_max = unit(number, count)
    return Split({"h_min": h_min, "h_max": h_max}, rows, size)


def splits_of(made: Cut, first: int, stop: int, most: int) -> list[Split]:
    """The hash ranges [first, stop) of a scan, put together to at most so many: neighbours are one range.

    >>> [s.rows for s in splits_of(("t", 8, 10, 100), 1, 6, 2)]
    [20, 30]
    """
    _, count, rows, size = made
    most = min(most, stop - first)
    edges = [first + (stop - first) * number // most for number in range(most + 1)]
    return [
        Split({"h_min": unit(a, count)[0], "h_max": unit(b - 1, count)[1]}, rows * (b - a), size * (b - a))
        for a, b in pairwise(edges)
    ]


def own_errors(runs: Sequence[RunRef], steps: Collection[str], worker: Worker) -> pa.Table:
    """The error rows of some steps, of all that runs hold."""
    rows = concat_runs(ERRORS_SPEC, runs, worker.open_file)
    return rows.filter(pc.is_in(rows.column("step"), value_set=pa.array(sorted(steps), pa.string())))


def write_errors(
    worker: Worker,
    rows: Mapping[int | None, pa.Table],
    token: int,
    epoch: int,
    *,
    at: int | None = None,
    spec: TableSpec = ERRORS_SPEC,
    task: int = 0,
) -> tuple[RunRef, ...]:
    """Error rows by bucket, in a file of the epoch to come; their content is of epoch `at` or of that."""
    writer = PackedWriter()
    for bucket, some in rows.items():
        writer.add(spec, deltas.consolidate(some), bucket=bucket)
    buffers, infos = writer.finish()
    if not infos:
        return ()
    name = f"runs/{token}/{epoch:016d}-d-{task}-{os.urandom(8).hex()}"
    if worker.store.put_new(name, buffers) is not Put.WON:
        raise InternalError("a random run name was already taken", detail=name)
    when = epoch if at is None else at
    return tuple(info.ref(name, lo=when, hi=when, kind="delta") for info in infos)
