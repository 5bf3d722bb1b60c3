"""Backfills new steps from what a pond stores, in one commit, while the pond waits.

Laws 1 and 2: the result is the state that the new steps would have if they had existed from the beginning, at
the epoch that all old views show; nothing of it is visible before the commit that names it.

The engine runs the plan of a backfill (`plan.backfill`) like any other, in chunks of bounded size, while
the pond waits (`long_backfill` lets it continue).  Each chunk is an epoch that is not committed, and its runs
are the state that the next chunk reads.  When all rows are read, watermarks rise, which closes windows that
have ended; runs are merged, and those of the new steps become one delta of the epoch.  All other files are
garbage, and after a crash all of them are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond import delta as deltas
from millpond.control.admission import spread
from millpond.engine.change.coalesced_buckets import spans_of
from millpond.engine.coordinator.compactor import compact
from millpond.engine.engine import Engine
from millpond.engine.error_rows import by_bucket
from millpond.engine.task import watermarks
from millpond.engine.task.full_row_retry import Epochs
from millpond.engine.task.spec import EpochSpec, Past, Report
from millpond.engine.task.worker import Worker
from millpond.errors import InternalError, UnavailableError
from millpond.operators.scan import Scan
from millpond.operators.state_scan import StateScan
from millpond.plan import codec
from millpond.plan.backfill import BackfillPlan
from millpond.plan.levels import cut
from millpond.plan.tables import table_specs
from millpond.secret_references import secrets_from
from millpond.sources.source import Split
from millpond.sources.unavailable import named
from millpond.state.manifest.backfill_progress import Cut
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import concat_runs
from millpond.state.plan_file import digest
from millpond.state.retention import ERRORS
from millpond.state.runs import run_names
from millpond.state.runs.compaction import FAN_IN, UNIT_BYTES, plan_merges, unit
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.secret_files import SecretFiles
from millpond.state.tables.error_rows import ERRORS_SPEC
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_spec import TableSpec

SPLITS_PER_TASK = 4


@dataclass(frozen=True)
class Progress:
    """The progress of a backfill; `total` is an upper estimate."""

    steps: tuple[str, ...]  # the steps that are backfilled
    rows: int
    total: int
    chunks: int


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class BackfillResult:
    """The state of the new steps, ready to be committed."""

    runs: tuple[RunRef, ...]
    counts: Mapping[str, int]
    watermarks: Mapping[str, Any]
    positions: Mapping[str, Any]  # of constant sources, which were read completely
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """The configuration of a backfill: where and how it runs."""

    worker: Worker
    engine: Engine
    base: Manifest
    epoch: int  # the epoch that will contain the result
    token: int
    now_us: int
    parallelism: int
    rows_max: int  # approximate rows per chunk
    bytes_max: int
    checks: bool = False
    vectorize_user_code: bool = True
    options: Mapping[str, Any] | None = field(default=None, repr=False)
    on_progress: OnProgress | None = None
    stopped: Callable[[], bool] = lambda: False  # called before every chunk


class BackfillStoppedError(UnavailableError):
    """The user stopped the pond; the backfill starts again with the next run."""


def backfill(setting: Setting, planned: BackfillPlan, new: frozenset[str]) -> BackfillResult:
    """Compute the state of the new steps of a change; empty if there are none."""
    if not new:
        return BackfillResult((), {}, {}, {}, {})
    return _Backfill(setting, planned, new).run()


def errors_taken_back(
    worker: Worker, base: Manifest, token: int, epoch: int, steps: frozenset[str]
) -> tuple[RunRef, ...]:
    """Runs that retract the error rows of some steps."""
    runs = Listing.of(base, worker.pages).runs(ERRORS)
    if not steps or not runs:
        return ()
    keys = KeySet.of(pa.table({"step": pa.array(sorted(steps), pa.string())}), ERRORS_SPEC.key)
    retracted = {}
    for bucket, own in by_bucket(runs).items():
        stored = Table(ERRORS_SPEC, own, worker.open_file).lookup(keys).table
        retracted[bucket] = deltas.negate(stored.select([*ERRORS_SPEC.schema.names, "_w"]))
    return write_errors(worker, retracted, token, epoch)


class _Backfill:
    def __init__(self, setting: Setting, planned: BackfillPlan, new: frozenset[str]) -> None:
        self.setting = setting
        self._epochs = Epochs(setting.engine)
        self.new = new
        self.found = planned
        self.plan = planned.plan
        self.levels = cut(planned.plan)
        self.specs = table_specs(planned.plan)
        self.past = Listing.of(setting.base, setting.worker.pages)
        self.spans = spans_of(planned.plan, setting.base.watermarks)  # all ended buckets close together
        self.runs: list[RunRef] = []
        self.counts: dict[str, int] = {}
        self.marks: dict[str, Any] = {}
        self.positions: dict[str, Any] = {}
        self.chunks = 0
        self.rows = 0
        self._raw_plan = codec.dumps(self.plan)
        self.catalog = run_names.plan_name(setting.token, setting.epoch, digest(self._raw_plan))

    def run(self) -> BackfillResult:
        setting = self.setting
        started = time.perf_counter()
        setting.worker.store.put_new(self.catalog, self._raw_plan)
        setting.worker.know_plan(self.catalog, self.plan)
        try:
            backfill = self.found
            parts = [
                [s for step in steps for s in self._splits(step)]
                for steps in (backfill.late_scans, backfill.lookup_scans)
            ]
            parts.append(
                [
                    s
                    for step in (*backfill.tables, *backfill.sources, *backfill.constants)
                    if step not in (*backfill.late_scans, *backfill.lookup_scans)
                    for s in self._splits(step)
                ]
            )
            total = sum(split.rows for part in parts for _, split in part)
            for part in parts:
                for chunk in self._chunks(part):
                    self._run(chunk)
                    self.rows += sum(split.rows for _, split in chunk)
                    self._report(total)
                    self._merge()
            self._close_passed_buckets()
            runs = self._finish()
        finally:
            setting.worker.forget_plan(self.catalog)
        metrics = {
            "steps": sorted(self.new),
            "rows": self.rows,
            "chunks": self.chunks,
            "ms": round((time.perf_counter() - started) * 1000, 3),
        }
        watermark_states = {step: mark for step, mark in self.marks.items() if step in self.new}
        return BackfillResult(runs, self.counts, watermark_states, self.positions, metrics)

    # -- reading ----------------------------------------------------------------------

    def _splits(self, step: str) -> Iterator[tuple[str, Split]]:
        rows = max(1, self.setting.rows_max // (SPLITS_PER_TASK * self.setting.parallelism))
        operator = self.plan.nodes[step].operator
        if isinstance(operator, StateScan):
            made = cut_scan(step, self.past.runs(operator.table.name), rows, self.setting.bytes_max)
            yield from ((step, split_of(made, number)) for number in range(made[1]))
        elif isinstance(operator, Scan):
            source, base = operator.source, self.setting.base
            if step in self.found.constants:
                with named(step), self._secrets():
                    splits = source.poll(None, None, rows).splits
                self.positions[step] = source.advance(None, splits, ()).position
                yield from ((step, split) for split in splits)
                return
            own = source.table(step)
            seen = None
            if own is not None:
                table = Table(own, self.past.runs(own.name), self.setting.worker.open_file)
                seen = table.scan().select(own.schema.names)
            with named(step), self._secrets():
                splits = tuple(source.history(base.positions.get(step), seen, rows))
            yield from ((step, split) for split in splits)

    def _secrets(self) -> AbstractContextManager[None]:
        return secrets_from(SecretFiles(self.setting.worker.store).value)

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

    def _run(self, chunk: list[tuple[str, Split]], rises: Mapping[str, Any] | None = None) -> None:
        """Run the plan over some splits; watermarks are unknown until they rise."""
        setting = self.setting
        if setting.stopped():
            raise BackfillStoppedError("the pond was stopped during a backfill")
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
            {},
            base.roots,
            setting.checks,
            options=dict(setting.options or {}),
            past=replace(Past.of(base), spans=self.spans, rises=rises),
            vectorize_user_code=setting.vectorize_user_code,
        )
        self._add(self._epochs.run(spec), spec.epoch)
        self.chunks += 1

    def _add(self, reports: list[Report], epoch: int) -> None:
        """Make the runs of a chunk the state that the next one reads."""
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
        """Error rows of the new steps; those of old steps are stored already."""
        if not runs:
            return ()
        rows = own_errors(runs, self.new, self.setting.worker)
        setting = self.setting
        return write_errors(setting.worker, {setting.now_us: rows}, setting.token, setting.epoch, at=epoch)

    def _merge(self) -> None:
        """Merge runs, so that lookups stay cheap after many chunks."""
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

    def _close_passed_buckets(self) -> None:
        """Raise watermarks to those of the pond, which closes the buckets that have ended.

        They rise from unknown, as in a first epoch: triggers fire when the end of their window is passed.
        """
        for step in self.found.late_scans:
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
            return  # no table has buckets that close by time
        states = dict(self.setting.base.watermarks)
        watermarks.merge(states, {s: m for s, m in self.marks.items() if s in self.new})
        self._run([], states)

    def _finish(self) -> tuple[RunRef, ...]:
        """The runs of the new steps, fully merged, as one delta of the epoch."""
        own = {t.name for step in self.new for t in self.plan.nodes[step].binding.tables} | {ERRORS}
        self.runs = [r for r in self.runs if r.table in own]
        for job in plan_merges(self.runs, unit_bytes=UNIT_BYTES, everything=True):
            self._replace(job)
        epoch = self.setting.epoch
        return tuple(replace(r, lo=epoch, hi=epoch, kind="delta") for r in self.runs)

    def _report(self, total: int) -> None:
        if self.setting.on_progress is not None:
            steps = tuple(sorted(self.new))
            self.setting.on_progress(Progress(steps, self.rows, max(total, self.rows), self.chunks))


def cut_scan(step: str, runs: Sequence[RunRef], rows: int, bytes_max: int) -> Cut:
    """Cut a scan of runs into hash ranges of about this many rows."""
    row_count, size = sum(ref.rows for ref in runs), sum(ref.bytes for ref in runs)
    count = max(1, -(-row_count // rows), -(-size // bytes_max)) if row_count else 0
    return step, count, row_count // max(1, count), size // max(1, count)


def split_of(made: Cut, number: int) -> Split:
    """One hash range of a scan."""
    _, count, rows, size = made
    h_min, h_max = unit(number, count)
    return Split({"h_min": h_min, "h_max": h_max}, rows, size)


def splits_of(made: Cut, first: int, stop: int, most: int) -> list[Split]:
    """The hash ranges [first, stop) of a scan, coalesced into at most `most` splits.

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
    """The error rows of some steps that these runs contain."""
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
    """Write error rows by bucket to a file of the next epoch; their content is of epoch `at`, or of that."""
    writer = PackedWriter()
    for bucket, some in rows.items():
        writer.add(spec, deltas.consolidate(some), bucket=bucket)
    buffers, infos = writer.finish()
    if not infos:
        return ()
    name = run_names.new_name(token, epoch, run_names.COORDINATOR, task)
    run_names.put_run(worker.store, name, buffers)
    when = epoch if at is None else at
    return tuple(info.ref(name, lo=when, hi=when, kind="delta") for info in infos)
