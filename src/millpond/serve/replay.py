"""Runs a committed epoch again in this process, and compares the result.

Law 3: manifest e-1 and the admitted input of e determine the outcome of e.  A replay takes both from the
pond, runs the same levels inline with the time, the watermarks and the tasks of that epoch, and compares the
result with what was committed.  The pond is not changed: runs are written to an overlay store.  What the
coordinator itself adds to an epoch (names of files that were read, input that was refused) is not computed
again and not compared.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond import delta as deltas
from millpond.control.admission import spread
from millpond.engine.coordinator.inbox_polling import INBOX, TABLE_KEY
from millpond.engine.coordinator.shed_decisions import unrecorded
from millpond.engine.error_rows import SETTLED
from millpond.engine.inline import InlineEngine
from millpond.engine.task import settled_watermarks, watermarks
from millpond.engine.task.partitioning import concat
from millpond.engine.task.spec import EpochSpec, Report
from millpond.engine.task.worker import Worker
from millpond.engine.traced_plan import OnError, OnInput, traced_errors, watched
from millpond.errors import DataError, InvalidError, UnavailableError
from millpond.operators.operator import Inputs
from millpond.operators.scan import Scan
from millpond.operators.source_traits import RestoresSplits
from millpond.plan.codec import with_code
from millpond.plan.compatibility import check_compatible
from millpond.plan.levels import cut
from millpond.plan.local_lookup import find_local_lookups
from millpond.plan.nodes import Plan
from millpond.plan.side_effects import unpickles
from millpond.plan.step_versions import newest, versioned
from millpond.plan.tables import table_specs
from millpond.plan.watermark_steps import watermark_steps
from millpond.serve.reader import Reader
from millpond.sources.source import Split
from millpond.state.inbox import FIRST_ENTRY, entry_name
from millpond.state.inbox import read as read_entry
from millpond.state.manifest import history
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import Manifest, is_retained, run_id
from millpond.state.manifest.snapshot import OpenFile, Snapshot, concat_runs
from millpond.state.retention import ERRORS
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.overlay_store import OverlayStore
from millpond.state.tables.table_spec import TableSpec

ONLY, GONE = "_only", "_gone"  # columns of a difference: which side has the row, and is it a deletion?


@dataclass(frozen=True)
class Replay:
    """The outcome of a replay."""

    epoch: int
    differences: Mapping[str, pa.Table]  # by table: rows that only one side has; `_only` says which
    outputs: Mapping[str, pa.Table]  # by step: its output delta
    counts: Mapping[str, int]  # of this epoch: rows/<step>, late/<step>, errors/<step>
    committed_counts: Mapping[str, int]
    watermarks: Mapping[str, Any]
    committed_watermarks: Mapping[str, Any]
    drops_differ: bool = False  # were other time buckets dropped?
    tables: int = 0  # the number of compared tables

    @property
    def same(self) -> bool:
        """Is the outcome equal to what was committed?"""
        return (
            not self.differences
            and not self.drops_differ
            and self.counts == self.committed_counts
            and self.watermarks == self.committed_watermarks
        )


def replay(
    reader: Reader,
    epoch: int | str,
    *,
    plan: Plan | None = None,
    live: Plan | None = None,
    step: str | None = None,
    on_input: OnInput | None = None,
    on_error: OnError | None = None,
) -> Replay:
    """Run an epoch again and compare.

    The code is what the pond stored with that epoch, or that of `plan`.  `live` is a plan whose sources exist
    in this process: they provide the input if the stored source belongs to the same step.  With `step` only
    that step is passed to `on_input` and included in the outputs.
    """
    with reader.pinned(epoch) as snapshot:
        manifest = snapshot.manifest
        base = _base(reader, manifest)
        stored = reader.plan_of(manifest)
        if plan is None:
            chosen = with_code(_with_sources(stored, live))
        else:
            newer = versioned(stored, plan).plan
            chosen = with_code(check_compatible(stored, newer, set(base.positions)))
        if unpickles(chosen):
            reader.worker.trust.require_owner("state is kept as pickles")
        if step is not None:
            step = newest(chosen.nodes, step)
        if step is not None and step not in chosen.nodes:
            matches = difflib.get_close_matches(step, chosen.nodes, 1)
            raise InvalidError(
                f"no step named {step!r}",
                detail=f"steps are {', '.join(chosen.nodes)}",
                hint=f"did you mean {matches[0]!r}?" if matches else None,
            )
        if "tasks" not in manifest.metrics:  # a command, merges, or cursors of sinks: no level was run
            return Replay(manifest.epoch, {}, {}, {}, {}, {}, {})
        splits = _splits(reader, manifest, chosen, base, stored)
        return _run(
            reader, manifest, base, stored, chosen, plan is not None, splits, step, on_input, on_error
        )


def _base(reader: Reader, manifest: Manifest) -> Manifest:
    """The previous epoch, which must still be readable."""
    if manifest.kind != "epoch":
        what = {
            "create": "made the pond",
            "fork": "began the fork",
            "takeover": "took the pond over",
            "rollback": f"went back to epoch {manifest.restores}",
            "change": "changed the program",
        }.get(manifest.kind, f"is of kind {manifest.kind!r}")
        raise InvalidError(
            f"epoch {manifest.epoch} computed nothing: it {what}",
            hint="replay an epoch of kind 'epoch'; `millpond epochs` lists them",
            epoch=manifest.epoch,
        )
    head = reader.head()
    is_readable = is_retained(head, manifest.epoch - 1) or manifest.epoch in head.savepoints.values()
    base = history.find_manifest(reader.store, manifest.epoch - 1) if is_readable else None
    if base is None:
        raise InvalidError(
            f"epoch {manifest.epoch} cannot be replayed: the epoch before it is no longer kept",
            detail=f"the oldest epoch that is kept is {head.floor}",
            hint="keep more history with retain_epochs, or make a savepoint of the epoch to replay",
            epoch=manifest.epoch,
        )
    return base


def _with_sources(stored: Plan, live: Plan | None) -> Plan:
    """The stored plan, with sources of this process in place of the stored ones."""
    nodes = dict(stored.nodes)
    for step, node in stored.nodes.items():
        mine = None if live is None else live.nodes.get(step)
        if mine is not None and isinstance(node.operator, Scan) and isinstance(mine.operator, Scan):
            nodes[step] = replace(node, operator=mine.operator)
    return replace(stored, nodes=nodes)


def _splits(
    reader: Reader, manifest: Manifest, plan: Plan, base: Manifest, stored: Plan
) -> dict[str, list[Split]]:
    """The input of the epoch, by the scan that reads it."""
    splits: dict[str, list[Split]] = {}
    for step, whats in manifest.admitted.items():
        partitions = manifest.arrivals.get(step, {}).get("partitions", ())
        for number, recorded in enumerate(whats):
            what, shed = unrecorded(recorded)
            scan = str(what[TABLE_KEY]) if step == INBOX else step
            node = plan.nodes.get(scan)
            if node is None or not isinstance(node.operator, Scan):
                raise InvalidError(
                    f"epoch {manifest.epoch} read source {scan!r}, which the pipeline does not have",
                    hint="replay with the pipeline that the epoch was run with",
                    epoch=manifest.epoch,
                )
            if step == INBOX:
                split = _entry(reader, what, base, stored)
            else:
                split = _split(manifest.epoch, scan, node.operator.source, what)
                if partitions:
                    split = replace(split, partition=partitions[number])
                split = replace(split, **shed)
            if split is None:
                raise _missing(
                    manifest.epoch,
                    scan,
                    f"inbox entry {what['entry']} is no longer kept; it held the rows",
                    "entries are kept for as long as the epochs that read them: "
                    "keep more history with retain_epochs, or make a savepoint of the epoch",
                )
            splits.setdefault(scan, []).append(split)
    return splits


def _missing(epoch: int, step: str, detail: str, hint: str | None) -> InvalidError:
    return InvalidError(
        f"epoch {epoch} cannot be replayed: what it read from source {step!r} is missing",
        detail=detail,
        hint=hint,
        step=step,
        epoch=epoch,
    )


def _entry(reader: Reader, what: Mapping[str, Any], base: Manifest, stored: Plan) -> Split | None:
    name = entry_name(int(what["entry"]))
    size = reader.store.size(name)
    if size is not None and FIRST_ENTRY in what:
        from millpond.engine.coordinator.inbox_changes import made_splits  # SQL is loaded where it is used

        before = Snapshot(reader.store, base, reader.worker.pages, reader.worker.open_file)
        numbers = range(int(what[FIRST_ENTRY]), int(what["entry"]) + 1)
        made, _ = made_splits(stored, before, [read_entry(reader.store, n) for n in numbers])
        return next((split for split in made if split.what[TABLE_KEY] == what[TABLE_KEY]), None)
    return None if size is None else Split(what, int(what["rows"]), size, blob=name)


def _split(epoch: int, step: str, source: Any, what: Mapping[str, Any]) -> Split:
    """A split to read; a source whose splits carry data creates it again."""
    if isinstance(source, RestoresSplits):
        try:
            made: Split = source.again(what)
        except InvalidError as error:
            detail = error.message if error.detail is None else f"{error.message}: {error.detail}"
            raise _missing(epoch, step, detail, error.hint) from error
        return made
    rows = what.get("rows")
    return Split(what, rows if isinstance(rows, int) else 0, 0)


def _run(
    reader: Reader,
    manifest: Manifest,
    base: Manifest,
    stored: Plan,
    plan: Plan,
    changed: bool,
    splits: Mapping[str, Sequence[Split]],
    step: str | None,
    on_input: OnInput | None,
    on_error: OnError | None,
) -> Replay:
    deltas_in: dict[str, list[pa.Table]] = {}

    def heard(at: str, inputs: Inputs) -> None:
        if on_input is not None and step in (None, at):
            on_input(at, inputs)

    def gave(at: str, table: pa.Table) -> None:
        if step in (None, at) and table.num_rows:
            deltas_in.setdefault(at, []).append(table)

    worker = Worker(OverlayStore(reader.store))
    catalog = manifest.catalog or ""
    worker.know_plan(catalog, watched(plan, heard, gave))
    tasks = tuple(int(n) for n in manifest.metrics["tasks"])
    # Another plan may have more or fewer levels; a replay does not use local lookups.
    if (
        changed
        or find_local_lookups(
            stored, {at: sum(s.rows for s in deltas_in) for at, deltas_in in splits.items()}
        ).lookups
    ):
        count = cut(plan).count
        tasks = (*tasks, *[base.parallelism] * (count - len(tasks)))[:count]
    spec = EpochSpec(
        store=reader.store.uri,
        catalog=catalog,
        epoch=manifest.epoch,
        token=manifest.token,
        now_us=manifest.now_us,
        parallelism=tasks,
        splits=spread(splits, tasks[0], whole=watermark_steps(plan).whole),
        pages=base.pages,
        recent=base.recent,
        gone=base.gone,
        watermarks=base.watermarks,
        arrivals=manifest.arrivals,
        roots=base.roots,
        full_rows=True,  # show all columns of a row
    )
    try:
        with traced_errors(plan, on_error):
            reports = InlineEngine(worker).run(spec)
    except (UnavailableError, DataError) as error:
        if error.step not in splits:
            raise
        assert error.step is not None
        detail = error.message if error.detail is None else f"{error.message}: {error.detail}"
        raise _missing(
            manifest.epoch,
            error.step,
            detail,
            "put it back as it was, or replay an epoch whose input is still there; "
            "keep files and messages for as long as the epochs that read them are to be replayed",
        ) from error
    return _compared(reader, manifest, base, stored, plan, worker, reports, deltas_in)


# -- comparing ----------------------------------------------------------------------


def _compared(
    reader: Reader,
    manifest: Manifest,
    base: Manifest,
    stored: Plan,
    plan: Plan,
    worker: Worker,
    reports: Sequence[Report],
    observed_inputs: Mapping[str, list[pa.Table]],
) -> Replay:
    observed: watermarks.Observed = {}
    counts: dict[str, int] = {}
    drops: dict[str, int] = {}
    for report in reports:
        watermarks.hear(observed, report.watermarks)
        drops.update(report.drops)
        for name, count in report.counts.items():
            counts[name] = counts.get(name, 0) + count
    steps = watermark_steps(plan)
    settled = settled_watermarks.settled(base.watermarks, observed, manifest.arrivals, manifest.now_us, steps)
    runs = [r for report in reports for r in report.runs]
    fresh = _by_table(r for r in runs if r.bucket is None or r.bucket >= drops.get(r.table, r.bucket))
    was = _by_table(r for r in manifest.added if r.kind == "delta" and (_is_settled(r) or not _is_drivers(r)))
    mine, theirs = table_specs(plan), table_specs(stored)
    differences = {}
    for table in sorted({*fresh, *was}):
        new = _rows(mine[table], fresh.get(table, ()), worker.open_file) if table in mine else None
        old = _rows(theirs[table], was.get(table, ()), reader.worker.open_file)
        if table == ERRORS:  # their deletions are written only if the rows are still stored
            new, old = _without_ends(new), _without_ends(old)
        odd = difference(new, old)
        if odd.num_rows:
            differences[table] = odd
    live = Listing.of(base, reader.worker.pages)
    gone = {
        run_id(r) for t, b in drops.items() for r in live.runs(t) if r.bucket is not None and r.bucket < b
    }
    return Replay(
        manifest.epoch,
        differences,
        {step: shown(concat(parts)) for step, parts in observed_inputs.items()},
        counts,
        _counted(reader, manifest, base),
        _like(settled, manifest.watermarks),
        manifest.watermarks,
        not gone <= set(manifest.removed),
        len({*fresh, *was}),
    )


def _like(watermarks: Mapping[str, Any], committed: Mapping[str, Any]) -> dict[str, Any]:
    """Watermarks without the partitions that an older release did not store."""
    states = dict(watermarks)
    for step, state in committed.items():
        if step in states and "scans" not in state:
            states[step] = {name: states[step][name] for name in ("max", "bound")}
    return states


def _by_table(runs: Any) -> dict[str, list[RunRef]]:
    by_table: dict[str, list[RunRef]] = {}
    for ref in runs:
        by_table.setdefault(ref.table, []).append(ref)
    return by_table


def _is_drivers(ref: RunRef) -> bool:
    """Was this run written by the coordinator itself, not by a task?"""
    return ref.file.rsplit("/", 1)[-1].split("-")[1] == "d"


def _is_settled(ref: RunRef) -> bool:
    """Are these error rows of tasks that the coordinator wrote again?"""
    return ref.table == ERRORS and _is_drivers(ref) and f"-d-{SETTLED}-" in ref.file


def _without_ends(rows: pa.Table | None) -> pa.Table | None:
    return None if rows is None else rows.filter(pa.array(deltas.weights(rows) > 0))


def _rows(spec: TableSpec, runs: Sequence[RunRef], open_file: OpenFile) -> pa.Table | None:
    """The rows of some runs as a delta in which a deletion is also a row: `_gone`."""
    if not runs:
        return None
    rows = concat_runs(spec, runs, open_file)
    if spec.rule == "weights":
        gone = pa.array(np.zeros(rows.num_rows, bool))
        return deltas.consolidate(rows.add_column(rows.num_columns - 1, GONE, gone))
    ends = deltas.weights(rows) == 0
    kept = pa.array(np.arange(rows.num_rows), mask=ends)
    for index, name in enumerate(rows.column_names):
        if name in spec.schema.names and name not in spec.identity:  # of a deletion only the identity counts
            column = rows.column(name)
            rows = rows.set_column(index, pa.field(name, column.type), column.take(kept))
    rows = deltas.with_weights(rows.drop_columns([deltas.WEIGHT]), np.ones(rows.num_rows, np.int64))
    return deltas.consolidate(rows.add_column(rows.num_columns - 1, GONE, pa.array(ends)))


def difference(new: pa.Table | None, old: pa.Table | None) -> pa.Table:
    """The rows that only one of the two deltas has, with `_w` and `_only`: "replay" or "committed"."""
    parts = [t for t in (new, None if old is None else deltas.negate(old)) if t is not None]
    if len({tuple((f.name, f.type) for f in part.schema) for part in parts}) > 1:
        parts = [_as_text(part) for part in parts]  # a changed plan stores other columns: nothing is equal
    else:
        parts = [deltas.consolidate(deltas.concat(parts))]
    odd = pa.concat_tables(parts, promote_options="default")
    w = deltas.weights(odd)
    odd = deltas.with_weights(odd.drop_columns([deltas.WEIGHT]), np.abs(w))
    return odd.append_column(ONLY, pa.array(np.where(w > 0, "replay", "committed")))


def _as_text(table: pa.Table) -> pa.Table:
    """Values as text, to compare tables with different types."""
    return pa.table(
        {
            name: column
            if name == deltas.WEIGHT
            else pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )


def _counted(reader: Reader, manifest: Manifest, base: Manifest) -> dict[str, int]:
    """The counts of the epoch's tasks: all that the epoch added, minus what the coordinator refused."""
    counts = {
        name: count - base.counts.get(name, 0)
        for name, count in manifest.counts.items()
        if count != base.counts.get(name, 0) and not name.startswith("lost/")  # those are counted by sinks
    }
    refused = [r for r in manifest.added if r.table == ERRORS and _is_drivers(r) and not _is_settled(r)]
    for ref in refused:
        segment = reader.worker.open_file(ref.file).segment(ref.segment)
        start, stop = segment.cut(ref.h_min, ref.h_max)
        steps = segment.slice("step", start, stop).to_pylist()
        for step, w in zip(steps, segment.slice(deltas.WEIGHT, start, stop).to_pylist(), strict=True):
            counts[f"errors/{step}"] = counts.get(f"errors/{step}", 0) - int(w)
    return {name: count for name, count in counts.items() if count}


def shown(table: pa.Table) -> pa.Table:
    """A delta for users: with weights, without the hash and the origin of rows."""
    table = table.drop_columns([c for c in (deltas.HASH, deltas.ORIGIN) if c in table.column_names])
    return deltas.with_weights(table, deltas.weights(table))
