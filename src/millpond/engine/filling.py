"""Filling new steps while the pond goes on: one chunk between two epochs.

Laws 1 and 2: the first round takes in the tables as they were at one epoch, in
chunks; every further round takes in what changed in them since the round before,
which is less each time.  When what is left fits into a chunk, that one and the new
program are one commit, and the view is there, exact at the epoch that all others
show.  How far it is stands in every manifest (`state.filling`), and the rows that
are in are in its listing; so whoever takes the pond over goes on with the next chunk.

For the new steps a round is one epoch.  Its rows come in no order of time, so watermarks stand still
until the last of them are in: what is late, closes and is dropped is as if they had come at once.  After the
first round, which holds all of the past, they rise step by step (`engine.over`), one chunk each.

Only a plan that *follows* (`plan.backfill`) can be filled this way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millpond.control.admission import spread
from millpond.engine import over, watermarks
from millpond.engine.backfill import (
    OnProgress,
    Progress,
    cut_scan,
    own_errors,
    splits_of,
    write_errors,
)
from millpond.engine.engine import Engine
from millpond.engine.protocol import ChangePlan, FillMore, FillMoved
from millpond.engine.spec import EpochSpec, Past
from millpond.engine.whole import Epochs
from millpond.engine.worker import Worker
from millpond.errors import InternalError, InvalidError
from millpond.operators.materialize import ERRORS_SPEC
from millpond.operators.scan import Scan
from millpond.operators.state_scan import StateScan
from millpond.operators.watermark import Watermark
from millpond.plan import codec
from millpond.plan.backfill import BackfillPlan
from millpond.plan.change import PlanChange
from millpond.plan.fill_order import fill_order
from millpond.plan.levels import cut
from millpond.plan.tables import table_specs
from millpond.sources.source import Split
from millpond.state import history
from millpond.state.filling import Cut, Fill
from millpond.state.listing import Listing
from millpond.state.manifest import Manifest
from millpond.state.plan_file import digest
from millpond.state.retention import ERRORS
from millpond.state.run_ref import RunRef
from millpond.state.snapshot import concat_runs
from millpond.state.table import Table
from millpond.state.table_spec import TableSpec

SPLITS = 128  # of a chunk of the largest size: how finely smaller ones can be cut
ALL = 1 << 62
ASIDE = f"{ERRORS}!filling"  # where error rows wait until the view is there
ASIDE_SPEC = replace(ERRORS_SPEC, name=ASIDE)


@dataclass(frozen=True)
class Adopted:
    """What the commit that adopts a fill must hold."""

    runs: tuple[RunRef, ...]
    gone: frozenset[str]  # tables that only the fill needed
    counts: Mapping[str, int]
    watermarks: Mapping[str, Any]  # of new steps
    positions: Mapping[str, Any]  # of constant sources, which are in whole
    metrics: Mapping[str, Any]
    drops: Mapping[str, int]


@dataclass(frozen=True)
class _Wrote:
    """What one run of the plan brought."""

    runs: tuple[RunRef, ...]  # that no change feed tells of
    drops: Mapping[str, int]
    counts: Mapping[str, int]
    seen: Mapping[str, Any]  # by new watermarks


class Filling:
    """One fill, as the process that does it knows it; made anew from its manifest after a crash."""

    def __init__(
        self,
        worker: Worker,
        engine: Engine,
        change: PlanChange,
        found: BackfillPlan,
        *,
        bytes_max: int,
        checks: bool = False,
        options: Mapping[str, Any] | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.worker = worker
        self._epochs = Epochs(engine)
        self.change = change
        self.found = found
        self.bytes_max = bytes_max
        self.checks = checks
        self.options = dict(options or {})
        self.on_progress = on_progress
        self.levels = cut(found.plan)
        tables = {name: spec for name, spec in table_specs(found.plan).items() if name != ERRORS}
        self.specs: dict[str, TableSpec] = {**tables, ASIDE: ASIDE_SPEC}
        self.own = frozenset(t.name for s in change.new for t in found.plan.nodes[s].binding.tables)
        self.scans = {
            step: node.operator.table.name
            for step, node in found.plan.nodes.items()
            if isinstance(node.operator, StateScan)
        }
        steps = found.plan.nodes.values()
        self.timed = any(t.time is not None for t in self.specs.values()) or any(
            isinstance(n.operator, Watermark) for n in steps
        )
        self._spans: tuple[int, Mapping[str, tuple[int, ...]]] | None = None  # of the first round's epoch
        self._plan: str | None = None  # the file that this process wrote
        self._changed: dict[int, tuple[RunRef, ...]] = {}  # by epoch, what it changed in the scanned tables

    def begun(self, ask: ChangePlan) -> Fill | None:
        """The fill that a change needs, before its first chunk; None where it is done as well at once."""
        assert ask.entry is not None
        rows = max(1, ask.rows_max // SPLITS)
        past = Listing.of(ask.base, self.worker.pages)
        cuts = self._cuts(rows, lambda table: past.runs(table))
        total = sum(count * held for _, count, held, _ in cuts)
        if total <= ask.at_once and sum(count * size for _, count, _, size in cuts) <= self.bytes_max:
            return None
        steps, tables = sorted(self.change.new), sorted(self.specs)
        return Fill(
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

    def more(self, ask: FillMore) -> FillMoved | Adopted:
        """The next chunk; the last one where what is left fits into it."""
        fill = ask.fill
        if (fill.steps, fill.tables) != (tuple(sorted(self.change.new)), tuple(sorted(self.specs))):
            raise InvalidError(
                "what is being filled was begun by another program",
                detail=f"it makes {', '.join(fill.steps)}",
                hint="create the view again",
            )
        if fill.done < fill.splits:
            return self._chunk(ask, fill, max(ask.rows, fill.least), self.bytes_max)
        if fill.behind_us != 0:
            return self._step(ask, fill)
        changed = self._between(fill.base, ask.base.epoch)
        rows, size = sum(r.rows for r in changed), sum(r.bytes for r in changed)
        if rows <= max(ask.rows, fill.least) and size <= self.bytes_max:
            return self._adopted(ask, fill, changed)
        named = _by_table(changed)
        following = replace(
            fill,
            base=ask.base.epoch,
            since=fill.base,
            cuts=self._cuts(fill.split_rows, lambda table: named.get(table, ())),
            done=0,
            round=fill.round + 1,
            now_us=ask.base.now_us,
        )
        total = sum(count * held for _, count, held, _ in following.cuts)
        # So many rows at a time that the pond comes half as far as in the round before, if it is fed as then:
        # half of half, and so on, where some tables must be in before the others (a chunk is cut there).
        parts = len({self.found.part(step) for step in self.scans})
        least = -(-(1 + parts) * rows // (ask.base.epoch - fill.base))
        following = replace(following, total=fill.total + total, least=least)
        return self._chunk(ask, following, max(ask.rows, least), self.bytes_max)

    # -- what is read -----------------------------------------------------------------

    def _cuts(self, rows: int, runs: Callable[[str], Sequence[RunRef]]) -> tuple[Cut, ...]:
        found = {step: runs(table) for step, table in self.scans.items()}
        sizes = {step: sum(ref.rows for ref in refs) for step, refs in found.items()}
        order = sorted(fill_order(self.found.plan, sizes), key=self.found.part)
        return tuple(cut_scan(step, found[step], rows, self.bytes_max) for step in order)

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
                    "a fill outlived what it was made for",
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

    def _chunk(self, ask: FillMore, fill: Fill, rows_max: int, bytes_max: int) -> FillMoved:
        started = time.perf_counter()
        splits: dict[str, list[Split]] = {}
        if fill.chunks == 0:  # all that is constant comes with the first
            splits = {step: [*given] for step, _, given in self._constants()}
        count = rows = size = 0
        taken: dict[Cut, list[int]] = {}  # each scan is read from where it was left, range by range
        left = [(self.found.part(step), number, made) for step, number, made in fill.left()]
        fits = sum(m[2] for *_, m in left) <= rows_max and sum(m[3] for *_, m in left) <= bytes_max
        for part, number, made in left:
            full = rows + made[2] > rows_max or size + made[3] > bytes_max
            if count and not fits and (full or part != left[0][0]):
                break
            taken.setdefault(made, []).append(number)
            count, rows, size = count + 1, rows + made[2], size + made[3]
        for made, numbers in taken.items():
            splits[made[0]] = splits_of(made, numbers[0], numbers[-1] + 1, ask.parallelism)
        past = Past.of(self._epoch(ask, fill.base))
        if fill.since is not None:
            past = replace(
                past,
                since=Past.of(self._epoch(ask, fill.since)),
                changed=tuple(r for r in self._between(fill.since, fill.base) if self._read_by(r, splits)),
            )
            if fill.done + count == fill.splits:  # all of the round is in, and time comes with it
                past = replace(past, rises=self._reached(ask, fill))
        else:
            past = replace(past, spans=self._in_spans(ask, fill))
        wrote = self._run(ask, splits, past, fill)
        moved = replace(
            fill,
            done=fill.done + count,
            rows=fill.rows + rows,
            chunks=fill.chunks + 1,
            counts=_sums(fill.counts, wrote.counts),
            seen=_newest(fill.seen, wrote.seen),
            plan=self._plan,
        )
        if past.rises is not None:
            moved = replace(moved, marks=self._reached(ask, moved))
        self._tell(moved)
        return FillMoved(moved, wrote.runs, rows, (time.perf_counter() - started) * 1000, wrote.drops)

    # -- time ---------------------------------------------------------------------------

    def _reached(self, ask: FillMore, fill: Fill) -> Mapping[str, Any]:
        """Where watermarks are for the new steps when all of a round is in."""
        return _newest(self._epoch(ask, fill.base).watermarks, fill.seen) if self.timed else {}

    def _in_spans(self, ask: FillMore, fill: Fill) -> Mapping[str, tuple[int, ...]]:
        if not self.timed:
            return {}
        if self._spans is None or self._spans[0] != fill.base:
            marks = self._epoch(ask, fill.base).watermarks
            self._spans = fill.base, over.spans_of(self.found.plan, marks)
        return self._spans[1]

    def _step(self, ask: FillMore, fill: Fill) -> FillMoved:
        """All of the past is in: time comes nearer to its end, by as much as ends few enough rows."""
        started = time.perf_counter()
        spans, listing = self._in_spans(ask, fill), Listing.of(ask.base, self.worker.pages)
        held = [ref for table in spans for ref in listing.runs(table)]
        behind_us, rows = over.next_step(held, spans, fill.behind_us, ask.rows)
        marks = over.stepped(self._reached(ask, fill), behind_us)
        fill = replace(fill, marks=marks, behind_us=behind_us, chunks=fill.chunks + 1)
        wrote = self._run(ask, {}, replace(Past.of(ask.base), spans=spans), fill)
        fill = replace(fill, counts=_sums(fill.counts, wrote.counts))
        self._tell(fill)
        return FillMoved(fill, wrote.runs, rows, (time.perf_counter() - started) * 1000, wrote.drops)

    # -- running it ---------------------------------------------------------------------

    def _epoch(self, ask: FillMore, epoch: int) -> Manifest:
        return ask.base if epoch == ask.base.epoch else history.read_manifest(self.worker.store, epoch)

    def _read_by(self, ref: RunRef, splits: Mapping[str, object]) -> bool:
        return any(self.scans.get(step) == ref.table for step in splits)

    def _run(self, ask: FillMore, splits: Mapping[str, Sequence[Split]], past: Past, fill: Fill) -> _Wrote:
        """Run the plan over some splits, at the time of a round."""
        if self._plan is None:
            raw = codec.dumps(self.found.plan)
            name = f"runs/{ask.token}/{ask.epoch:016d}-p-0-{digest(raw)}"
            self.worker.store.put_new(name, raw)
            self.worker.know_plan(name, self.found.plan)
            self._plan = name
        first = max(1, min(ask.parallelism, sum(len(given) for given in splits.values())))
        spec = EpochSpec(
            self.worker.store.uri,
            self._plan,
            ask.epoch,
            ask.token,
            fill.now_us,
            (first, *[ask.parallelism] * (self.levels.count - 1)),
            spread(splits, first),
            ask.base.pages,
            ask.base.recent,
            ask.base.gone,
            fill.marks,
            ask.base.roots,
            self.checks,
            options=self.options,
            past=past,
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
        return _Wrote(tuple(replace(r, kind="merge") for r in runs), drops, counts, seen)

    # -- the end -----------------------------------------------------------------------

    def _adopted(self, ask: FillMore, fill: Fill, changed: Sequence[RunRef]) -> Adopted:
        """The state of the new steps at the head: what changed since the last round comes as one chunk."""
        following = replace(fill, base=ask.base.epoch, since=fill.base, done=0, cuts=(), now_us=ask.now_us)
        runs: tuple[RunRef, ...] = ()
        drops: Mapping[str, int] = {}
        if changed or self.timed:
            named = _by_table(changed)
            cuts = self._cuts(fill.split_rows, lambda table: named.get(table, ()))
            rows = sum(count * held for _, count, held, _ in cuts)
            following = replace(following, cuts=cuts, total=fill.total + rows)
            moved = self._chunk(ask, following, ALL, ALL)
            following, runs, drops = moved.fill, moved.runs, moved.drops
        held = Listing.of(ask.base, self.worker.pages).runs(ASIDE)
        self._check_owed(ask, runs)
        aside = [*held, *(r for r in runs if r.table == ASIDE)]
        errors: tuple[RunRef, ...] = ()
        if aside:
            rows_ = concat_runs(ASIDE_SPEC, aside, self.worker.open_file)
            errors = write_errors(self.worker, {ask.now_us: rows_}, ask.token, ask.epoch)
        metrics = {
            "steps": list(fill.steps),
            "rows": following.rows,
            "chunks": following.chunks,
            "rounds": following.round + 1,
            "ms": round(max(0, ask.now_us - fill.begun_us) / 1000, 3),
        }
        positions = {
            step: scan.source.advance(None, splits, ()).position for step, scan, splits in self._constants()
        }
        kept = tuple(r for r in runs if r.table in self.own)
        gone = frozenset(self.specs) - self.own
        marks = {step: mark for step, mark in following.marks.items() if step in self.change.new}
        return Adopted((*kept, *errors), gone, following.counts, marks, positions, metrics, drops)

    def _check_owed(self, ask: FillMore, runs: Sequence[RunRef]) -> None:
        """Every row that was late was among those that were read."""
        listing = Listing.of(ask.base, self.worker.pages)
        for late in self.found.first:
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

    def _tell(self, fill: Fill) -> None:
        if self.on_progress is not None:
            self.on_progress(progress_of(fill))


def progress_of(fill: Fill) -> Progress:
    return Progress(fill.steps, fill.rows, max(fill.total, fill.rows), fill.chunks)


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {*one, *other}}


def _newest(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(one)
    watermarks.merge(found, other)
    return found


def _by_table(runs: Sequence[RunRef]) -> dict[str, list[RunRef]]:
    found: dict[str, list[RunRef]] = {}
    for ref in runs:
        found.setdefault(ref.table, []).append(ref)
    return found
