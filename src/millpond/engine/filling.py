"""Filling new steps while the pond goes on: one chunk between two epochs.

Laws 1 and 2: the first round takes in the tables as they were at one epoch, in
chunks; every further round takes in what changed in them since the round before,
which is less each time.  When what is left fits into a chunk, that one and the new
program are one commit, and the view is there, exact at the epoch that all others
show.  How far it is stands in every manifest (`state.filling`), and the rows that
are in are in its listing; so whoever takes the pond over goes on with the next chunk.

Only a plan that *follows* (`plan.backfill`) can be filled this way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millpond.control.admission import spread
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
from millpond.operators.materialize import ERRORS, ERRORS_SPEC
from millpond.operators.scan import Scan
from millpond.operators.state_scan import StateScan
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
from millpond.state.run_ref import RunRef
from millpond.state.snapshot import concat_runs
from millpond.state.table_spec import TableSpec

SPLITS = 128  # of a chunk of the largest size: how finely smaller ones can be cut
ALL = 1 << 62
ASIDE = f"{ERRORS}!filling"  # where error rows wait until the view is there
ASIDE_SPEC = replace(ERRORS_SPEC, name=ASIDE)


@dataclass(frozen=True)
class Adopted:
    """What the commit that adopts a fill must hold."""

    runs: tuple[RunRef, ...]
    over: frozenset[str]  # tables that only the fill needed
    counts: Mapping[str, int]
    positions: Mapping[str, Any]  # of constant sources, which are in whole
    metrics: Mapping[str, Any]


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
        )
        total = sum(count * held for _, count, held, _ in following.cuts)
        # So many rows at a time that the pond comes half as far as in the round before, if it is fed as then.
        least = -(-2 * rows // (ask.base.epoch - fill.base))
        following = replace(following, total=fill.total + total, least=least)
        return self._chunk(ask, following, max(ask.rows, least), self.bytes_max)

    # -- what is read -----------------------------------------------------------------

    def _cuts(self, rows: int, runs: Callable[[str], Sequence[RunRef]]) -> tuple[Cut, ...]:
        found = {step: runs(table) for step, table in self.scans.items()}
        sizes = {step: sum(ref.rows for ref in refs) for step, refs in found.items()}
        order = fill_order(self.found.plan, sizes)
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
        for _, number, made in fill.left():
            if count and (rows + made[2] > rows_max or size + made[3] > bytes_max):
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
        runs, counts = self._run(ask, splits, past)
        moved = replace(
            fill,
            done=fill.done + count,
            rows=fill.rows + rows,
            chunks=fill.chunks + 1,
            counts=_sums(fill.counts, counts),
            plan=self._plan,
        )
        self._tell(moved)
        return FillMoved(moved, runs, rows, (time.perf_counter() - started) * 1000)

    def _epoch(self, ask: FillMore, epoch: int) -> Manifest:
        return ask.base if epoch == ask.base.epoch else history.read_manifest(self.worker.store, epoch)

    def _read_by(self, ref: RunRef, splits: Mapping[str, object]) -> bool:
        return any(self.scans.get(step) == ref.table for step in splits)

    def _run(
        self, ask: FillMore, splits: Mapping[str, Sequence[Split]], past: Past
    ) -> tuple[tuple[RunRef, ...], dict[str, int]]:
        """Run the plan over some splits; what it wrote, as runs that no change feed tells of, and counts."""
        if self._plan is None:
            name = f"runs/{ask.token}/{ask.epoch:016d}-p-0-{os.urandom(8).hex()}"
            self.worker.store.put_new(name, codec.dumps(self.found.plan))
            self.worker.know_plan(name, self.found.plan)
            self._plan = name
        first = max(1, min(ask.parallelism, sum(len(given) for given in splits.values())))
        spec = EpochSpec(
            self.worker.store.uri,
            self._plan,
            ask.epoch,
            ask.token,
            ask.now_us,
            (first, *[ask.parallelism] * (self.levels.count - 1)),
            spread(splits, first),
            ask.base.pages,
            ask.base.recent,
            ask.base.gone,
            {},
            ask.base.roots,
            self.checks,
            options=self.options,
            past=past,
        )
        fresh: list[RunRef] = []
        counts: dict[str, int] = {}
        for report in self._epochs.run(spec):
            if report.drops:
                raise InternalError("a step that follows dropped what is over", detail=str(report.drops))
            fresh += report.runs
            for name, count in report.counts.items():
                if name.partition("/")[2] in self.change.new:
                    counts[name] = counts.get(name, 0) + count
        runs = [r for r in fresh if r.table != ERRORS]
        failed = [r for r in fresh if r.table == ERRORS]
        if failed:
            rows = own_errors(failed, self.change.new, self.worker)
            runs += write_errors(self.worker, rows, ask.token, ask.epoch, spec=ASIDE_SPEC)
        return tuple(replace(r, kind="merge") for r in runs), counts

    # -- the end -----------------------------------------------------------------------

    def _adopted(self, ask: FillMore, fill: Fill, changed: Sequence[RunRef]) -> Adopted:
        """The state of the new steps at the head: what changed since the last round comes as one chunk."""
        following = replace(fill, base=ask.base.epoch, since=fill.base, done=0)
        runs: tuple[RunRef, ...] = ()
        if changed:
            named = _by_table(changed)
            cuts = self._cuts(fill.split_rows, lambda table: named.get(table, ()))
            rows = sum(count * held for _, count, held, _ in cuts)
            following = replace(following, cuts=cuts, total=fill.total + rows)
            moved = self._chunk(ask, following, ALL, ALL)
            following, runs = moved.fill, moved.runs
        held = Listing.of(ask.base, self.worker.pages).runs(ASIDE)
        aside = [*held, *(r for r in runs if r.table == ASIDE)]
        errors: tuple[RunRef, ...] = ()
        if aside:
            rows_ = concat_runs(ASIDE_SPEC, aside, self.worker.open_file)
            errors = write_errors(self.worker, rows_, ask.token, ask.epoch)
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
        over = frozenset(self.specs) - self.own
        return Adopted((*kept, *errors), over, following.counts, positions, metrics)

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


def _by_table(runs: Sequence[RunRef]) -> dict[str, list[RunRef]]:
    found: dict[str, list[RunRef]] = {}
    for ref in runs:
        found.setdefault(ref.table, []).append(ref)
    return found
