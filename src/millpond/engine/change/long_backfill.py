"""Backfills new steps while the pond keeps running: one chunk between two epochs.

Laws 1 and 2: the first round reads the tables as of one epoch, in chunks.  Every further round reads what
changed in them since the previous round, which is less each time.  When the rest fits into one chunk, that
chunk and the new program are one commit, and the view is exact at the epoch that all others show.  Every
manifest carries the progress (`state.manifest.backfill_progress`), and its listing contains the rows computed
so far; so a process that takes the pond over continues with the next chunk.

For the new steps a round is one epoch.  Its rows arrive in no order of time, so watermarks do not move until
the last of them is read: rows are late and buckets close as if all rows had arrived together.  After the
first round, which contains all past rows, watermarks rise step by step (`coalesced_buckets`), one chunk each.

Only a plan that *follows* (`plan.backfill`) can be backfilled this way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millpond.control.admission import spread
from millpond.engine.change import coalesced_buckets
from millpond.engine.change.backfill import (
    OnProgress,
    Progress,
    cut_scan,
    own_errors,
    splits_of,
    write_errors,
)
from millpond.engine.coordinator.protocol import BackfillChunkDone, ChangePlan, RunBackfillChunk
from millpond.engine.engine import Engine
from millpond.engine.task import watermarks
from millpond.engine.task.full_row_retry import Epochs
from millpond.engine.task.spec import EpochSpec, Past
from millpond.engine.task.worker import Worker
from millpond.errors import InternalError, InvalidError
from millpond.operators.scan import Scan
from millpond.operators.state_scan import StateScan
from millpond.operators.watermark import Watermark
from millpond.plan import codec
from millpond.plan.backfill import BackfillPlan
from millpond.plan.backfill_order import backfill_order
from millpond.plan.change import PlanChange
from millpond.plan.levels import cut
from millpond.plan.tables import table_specs
from millpond.sources.source import Split
from millpond.state.manifest import history
from millpond.state.manifest.backfill_progress import BackfillProgress, Cut
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import concat_runs
from millpond.state.plan_file import digest
from millpond.state.retention import ERRORS
from millpond.state.runs import run_names
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.error_rows import ERRORS_SPEC
from millpond.state.tables.table import Table
from millpond.state.tables.table_spec import TableSpec

SPLITS = 128  # of a chunk of the largest size; smaller chunks read fewer
ALL = 1 << 62
ASIDE = f"{ERRORS}!filling"  # the table of error rows until the view is committed
ASIDE_SPEC = replace(ERRORS_SPEC, name=ASIDE)


@dataclass(frozen=True)
class AdoptedBackfill:
    """The content of the commit that ends a long backfill."""

    runs: tuple[RunRef, ...]
    gone: frozenset[str]  # tables that only the backfill needed
    counts: Mapping[str, int]
    watermarks: Mapping[str, Any]  # of new steps
    positions: Mapping[str, Any]  # of constant sources, which were read completely
    metrics: Mapping[str, Any]
    drops: Mapping[str, int]


@dataclass(frozen=True)
class _ChunkOutput:
    """The output of one run of the plan."""

    runs: tuple[RunRef, ...]  # hidden from change feeds
    drops: Mapping[str, int]
    counts: Mapping[str, int]
    seen: Mapping[str, Any]  # the latest times, by new watermark step


class LongBackfill:
    """One backfill in the running process; after a crash it is rebuilt from the manifest."""

    def __init__(
        self,
        worker: Worker,
        engine: Engine,
        change: PlanChange,
        planned: BackfillPlan,
        *,
        bytes_max: int,
        checks: bool = False,
        vectorize_user_code: bool = True,
        options: Mapping[str, Any] | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.worker = worker
        self._epochs = Epochs(engine)
        self.change = change
        self.found = planned
        self.bytes_max = bytes_max
        self.checks = checks
        self.vectorize_user_code = vectorize_user_code
        self.options = dict(options or {})
        self.on_progress = on_progress
        self.levels = cut(planned.plan)
        tables = {name: spec for name, spec in table_specs(planned.plan).items() if name != ERRORS}
        self.specs: dict[str, TableSpec] = {**tables, ASIDE: ASIDE_SPEC}
        self.own = frozenset(t.name for s in change.new for t in planned.plan.nodes[s].binding.tables)
        self.scans = {
            step: node.operator.table.name
            for step, node in planned.plan.nodes.items()
            if isinstance(node.operator, StateScan)
        }
        steps = planned.plan.nodes.values()
        self.timed = any(t.time is not None for t in self.specs.values()) or any(
            isinstance(n.operator, Watermark) for n in steps
        )
        self._spans: tuple[int, Mapping[str, tuple[int, ...]]] | None = None  # of the first round's epoch
        self._plan: str | None = None  # the file that this process wrote
        self._changed: dict[int, tuple[RunRef, ...]] = {}  # by epoch, its changes of the scanned tables

    def begin(self, ask: ChangePlan) -> BackfillProgress | None:
        """The progress before the first chunk; None if the change is small enough to be made directly."""
        assert ask.entry is not None
        rows = max(1, ask.rows_max // SPLITS)
        past = Listing.of(ask.base, self.worker.pages)
        cuts = self._cuts(rows, lambda table: past.runs(table))
        total = sum(count * rows_each for _, count, rows_each, _ in cuts)
        if total <= ask.at_once and sum(count * size for _, count, _, size in cuts) <= self.bytes_max:
            return None
        steps, tables = sorted(self.change.new), sorted(self.specs)
        return BackfillProgress(
            ask.entry,
            ask.catalog,
            tuple(steps),
            tuple(tables),
            ask.base.epoch,
            cuts,
            ask.now_us,
            rows,
            total,
            now_us=ask.now_us,
            behind_us=None if self.timed else 0,
        )

    def run_chunk(self, ask: RunBackfillChunk) -> BackfillChunkDone | AdoptedBackfill:
        """Run the next chunk, which is the last one if the rest fits into it."""
        progress = ask.progress
        if (progress.steps, progress.tables) != (tuple(sorted(self.change.new)), tuple(sorted(self.specs))):
            raise InvalidError(
                "the running backfill was begun by another program",
                detail=f"it makes {', '.join(progress.steps)}",
                hint="create the view again",
            )
        if progress.done < progress.splits:
            return self._chunk(ask, progress, max(ask.rows, progress.least), self.bytes_max)
        if progress.behind_us != 0:
            return self._raise_watermarks(ask, progress)
        changed = self._between(progress.base, ask.base.epoch)
        rows, size = sum(r.rows for r in changed), sum(r.bytes for r in changed)
        if rows <= max(ask.rows, progress.least) and size <= self.bytes_max:
            return self._adopt(ask, progress, changed)
        named = _by_table(changed)
        following = replace(
            progress,
            base=ask.base.epoch,
            since=progress.base,
            cuts=self._cuts(progress.split_rows, lambda table: named.get(table, ())),
            done=0,
            round=progress.round + 1,
            now_us=ask.base.now_us,
        )
        total = sum(count * rows_each for _, count, rows_each, _ in following.cuts)
        # Enough rows per chunk for this round to take half as many epochs as the last one, at the same input
        # rate; more where some tables must be read before others, as a chunk ends there.
        parts = len({self.found.phase(step) for step in self.scans})
        least = -(-(1 + parts) * rows // (ask.base.epoch - progress.base))
        following = replace(following, total=progress.total + total, least=least)
        return self._chunk(ask, following, max(ask.rows, least), self.bytes_max)

    # -- reading ----------------------------------------------------------------------

    def _cuts(self, rows: int, runs: Callable[[str], Sequence[RunRef]]) -> tuple[Cut, ...]:
        runs_of = {step: runs(table) for step, table in self.scans.items()}
        sizes = {step: sum(ref.rows for ref in refs) for step, refs in runs_of.items()}
        order = sorted(backfill_order(self.found.plan, sizes), key=self.found.phase)
        return tuple(cut_scan(step, runs_of[step], rows, self.bytes_max) for step in order)

    def _between(self, since: int, until: int) -> tuple[RunRef, ...]:
        """The runs that epochs after `since` up to `until` added to the scanned tables."""
        tables = frozenset(self.scans.values())
        for epoch in [e for e in self._changed if e <= since]:
            del self._changed[epoch]
        for epoch in range(since + 1, until + 1):
            if epoch in self._changed:
                continue
            manifest = history.read_manifest(self.worker.store, epoch)
            if manifest.kind not in ("epoch", "takeover") or "rewrote" in manifest.metrics:
                raise InternalError(
                    "a backfill outlived the program it was made for",
                    detail=f"epoch {epoch} is of kind {manifest.kind}",
                    epoch=epoch,
                )
            self._changed[epoch] = tuple(r for r in manifest.added if r.kind == "delta" and r.table in tables)
        return tuple(r for epoch in range(since + 1, until + 1) for r in self._changed[epoch])

    def _constants(self) -> Iterator[tuple[str, Scan, tuple[Split, ...]]]:
        for step in self.found.constants:
            scan = self.found.plan.nodes[step].operator
            assert isinstance(scan, Scan)
            yield step, scan, tuple(scan.source.poll(None, None, ALL).splits)

    # -- one chunk ----------------------------------------------------------------------

    def _chunk(
        self, ask: RunBackfillChunk, progress: BackfillProgress, rows_max: int, bytes_max: int
    ) -> BackfillChunkDone:
        started = time.perf_counter()
        splits: dict[str, list[Split]] = {}
        if progress.chunks == 0:  # constant sources are read with the first chunk
            splits = {step: [*constant_splits] for step, _, constant_splits in self._constants()}
        count = rows = size = 0
        taken: dict[Cut, list[int]] = {}  # by scan: the hash ranges that this chunk reads
        left = [(self.found.phase(step), number, made) for step, number, made in progress.left()]
        fits = sum(m[2] for *_, m in left) <= rows_max and sum(m[3] for *_, m in left) <= bytes_max
        for part, number, made in left:
            full = rows + made[2] > rows_max or size + made[3] > bytes_max
            if count and not fits and (full or part != left[0][0]):
                break
            taken.setdefault(made, []).append(number)
            count, rows, size = count + 1, rows + made[2], size + made[3]
        for made, numbers in taken.items():
            splits[made[0]] = splits_of(made, numbers[0], numbers[-1] + 1, ask.parallelism)
        past = Past.of(self._epoch(ask, progress.base))
        if progress.since is not None:
            past = replace(
                past,
                since=Past.of(self._epoch(ask, progress.since)),
                changed=tuple(
                    r for r in self._between(progress.since, progress.base) if self._read_by(r, splits)
                ),
            )
            if progress.done + count == progress.splits:  # the last chunk of the round raises watermarks
                past = replace(past, rises=self._reached(ask, progress))
        else:
            past = replace(past, spans=self._coalesced(ask, progress))
        output = self._run(ask, splits, past, progress)
        moved = replace(
            progress,
            done=progress.done + count,
            rows=progress.rows + rows,
            chunks=progress.chunks + 1,
            counts=_sums(progress.counts, output.counts),
            seen=_newest(progress.seen, output.seen),
            plan=self._plan,
        )
        if past.rises is not None:
            moved = replace(moved, marks=self._reached(ask, moved))
        self._report(moved)
        return BackfillChunkDone(
            moved, output.runs, rows, (time.perf_counter() - started) * 1000, output.drops
        )

    # -- watermarks ---------------------------------------------------------------------

    def _reached(self, ask: RunBackfillChunk, progress: BackfillProgress) -> Mapping[str, Any]:
        """The watermarks of the new steps when all rows of a round are read."""
        return _newest(self._epoch(ask, progress.base).watermarks, progress.seen) if self.timed else {}

    def _coalesced(self, ask: RunBackfillChunk, progress: BackfillProgress) -> Mapping[str, tuple[int, ...]]:
        if not self.timed:
            return {}
        if self._spans is None or self._spans[0] != progress.base:
            reached = self._epoch(ask, progress.base).watermarks
            self._spans = progress.base, coalesced_buckets.spans_of(self.found.plan, reached)
        return self._spans[1]

    def _raise_watermarks(self, ask: RunBackfillChunk, progress: BackfillProgress) -> BackfillChunkDone:
        """Raise watermarks, after all past rows are read, by a step that closes few enough rows."""
        started = time.perf_counter()
        spans, listing = self._coalesced(ask, progress), Listing.of(ask.base, self.worker.pages)
        runs = [ref for table in spans for ref in listing.runs(table)]
        behind_us, rows = coalesced_buckets.next_step(runs, spans, progress.behind_us, ask.rows)
        risen = coalesced_buckets.stepped(self._reached(ask, progress), behind_us)
        # From the last ones: triggers fire when the end of their window is passed.
        output = self._run(ask, {}, replace(Past.of(ask.base), spans=spans, rises=risen), progress)
        progress = replace(
            progress,
            marks=risen,
            behind_us=behind_us,
            chunks=progress.chunks + 1,
            counts=_sums(progress.counts, output.counts),
        )
        self._report(progress)
        return BackfillChunkDone(
            progress, output.runs, rows, (time.perf_counter() - started) * 1000, output.drops
        )

    # -- running the plan ---------------------------------------------------------------

    def _epoch(self, ask: RunBackfillChunk, epoch: int) -> Manifest:
        return ask.base if epoch == ask.base.epoch else history.read_manifest(self.worker.store, epoch)

    def _read_by(self, ref: RunRef, splits: Mapping[str, object]) -> bool:
        return any(self.scans.get(step) == ref.table for step in splits)

    def _run(
        self,
        ask: RunBackfillChunk,
        splits: Mapping[str, Sequence[Split]],
        past: Past,
        progress: BackfillProgress,
    ) -> _ChunkOutput:
        """Run the plan over some splits, at the time of the round."""
        if self._plan is None:
            raw = codec.dumps(self.found.plan)
            name = run_names.plan_name(ask.token, ask.epoch, digest(raw))
            self.worker.store.put_new(name, raw)
            self.worker.know_plan(name, self.found.plan)
            self._plan = name
        first = max(1, min(ask.parallelism, sum(len(of_step) for of_step in splits.values())))
        spec = EpochSpec(
            self.worker.store.uri,
            self._plan,
            ask.epoch,
            ask.token,
            progress.now_us,
            (first, *[ask.parallelism] * (self.levels.count - 1)),
            spread(splits, first),
            ask.base.pages,
            ask.base.recent,
            ask.base.gone,
            progress.marks,
            ask.base.roots,
            self.checks,
            options=self.options,
            past=past,
            vectorize_user_code=self.vectorize_user_code,
        )
        fresh: list[RunRef] = []
        counts: dict[str, int] = {}
        drops: dict[str, int] = {}
        seen: dict[str, Any] = {}
        for report in self._epochs.run(spec):
            drops.update(report.drops)
            watermarks.merge(seen, {s: m for s, m in report.watermarks.items() if s in self.change.new})
            fresh += report.runs
            for name, count in report.counts.items():
                if name.partition("/")[2] in self.change.new:
                    counts[name] = counts.get(name, 0) + count
        runs = [r for r in fresh if r.table != ERRORS]
        failed = [r for r in fresh if r.table == ERRORS]
        if failed:
            rows = own_errors(failed, self.change.new, self.worker)
            runs += write_errors(self.worker, {None: rows}, ask.token, ask.epoch, spec=ASIDE_SPEC)
        return _ChunkOutput(tuple(replace(r, kind="merge") for r in runs), drops, counts, seen)

    # -- the end -----------------------------------------------------------------------

    def _adopt(
        self, ask: RunBackfillChunk, progress: BackfillProgress, changed: Sequence[RunRef]
    ) -> AdoptedBackfill:
        """Compute the state of the new steps at the head: the changes since the last round are one chunk."""
        following = replace(
            progress, base=ask.base.epoch, since=progress.base, done=0, cuts=(), now_us=ask.now_us
        )
        runs: tuple[RunRef, ...] = ()
        drops: Mapping[str, int] = {}
        if changed or self.timed:
            named = _by_table(changed)
            cuts = self._cuts(progress.split_rows, lambda table: named.get(table, ()))
            rows = sum(count * backfilled for _, count, backfilled, _ in cuts)
            following = replace(following, cuts=cuts, total=progress.total + rows)
            moved = self._chunk(ask, following, ALL, ALL)
            following, runs, drops = moved.progress, moved.runs, moved.drops
        backfilled = Listing.of(ask.base, self.worker.pages).runs(ASIDE)
        self._check_owed(ask, runs)
        aside = [*backfilled, *(r for r in runs if r.table == ASIDE)]
        errors: tuple[RunRef, ...] = ()
        if aside:
            rows_ = concat_runs(ASIDE_SPEC, aside, self.worker.open_file)
            errors = write_errors(self.worker, {ask.now_us: rows_}, ask.token, ask.epoch)
        metrics = {
            "steps": list(progress.steps),
            "rows": following.rows,
            "chunks": following.chunks,
            "rounds": following.round + 1,
            "ms": round(max(0, ask.now_us - progress.begun_us) / 1000, 3),
        }
        positions = {
            step: scan.source.advance(None, splits, ()).position for step, scan, splits in self._constants()
        }
        kept = tuple(r for r in runs if r.table in self.own)
        gone = frozenset(self.specs) - self.own
        marks = {step: mark for step, mark in following.marks.items() if step in self.change.new}
        return AdoptedBackfill((*kept, *errors), gone, following.counts, marks, positions, metrics, drops)

    def _check_owed(self, ask: RunBackfillChunk, runs: Sequence[RunRef]) -> None:
        """Check that every late row was among the rows that were read."""
        listing = Listing.of(ask.base, self.worker.pages)
        for late in self.found.late_scans:
            step = late.removesuffix("!late")
            spec = self.specs[f"{step}/owed"]
            held = [*listing.runs(spec.name), *(r for r in runs if r.table == spec.name)]
            left = Table(spec, held, self.worker.open_file).scan(list(spec.key))
            if left.num_rows:
                raise InternalError(
                    "rows that were late are not among those that were read",
                    detail=f"{left.num_rows} of them, in {spec.name}",
                    step=step,
                )

    def forget(self) -> None:
        if self._plan is not None:
            self.worker.forget_plan(self._plan)

    def _report(self, progress: BackfillProgress) -> None:
        if self.on_progress is not None:
            self.on_progress(progress_of(progress))


def progress_of(progress: BackfillProgress) -> Progress:
    return Progress(progress.steps, progress.rows, max(progress.total, progress.rows), progress.chunks)


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {*one, *other}}


def _newest(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    newest = dict(one)
    watermarks.merge(newest, other)
    return newest


def _by_table(runs: Sequence[RunRef]) -> dict[str, list[RunRef]]:
    by_table: dict[str, list[RunRef]] = {}
    for ref in runs:
        by_table.setdefault(ref.table, []).append(ref)
    return by_table
