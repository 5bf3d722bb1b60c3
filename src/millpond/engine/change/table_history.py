"""Reads tables for a backfill: as of an epoch, or the changes between two epochs.

Law 5: changes are read from the runs that the epochs between added, never from
merges, and from the keys they touch.  A hash range of a change takes that range
of the table from one epoch to the other, so in any order of ranges and tables
the intermediate sums are valid contents of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from millpond import delta as deltas
from millpond.engine.task.spec import Past
from millpond.engine.task.worker import Worker
from millpond.sources.source import Split
from millpond.state.manifest.listing import Listing, live_runs
from millpond.state.manifest.snapshot import concat_runs, visible
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_scan import TableScan
from millpond.state.tables.table_spec import TableSpec


def past_rows(past: Past, spec: TableSpec, columns: Sequence[str], split: Split, worker: Worker) -> pa.Table:
    """One hash range of a table at the epoch of `past`, or its changes if `past.since` is set."""
    h_min, h_max = split.what["h_min"], split.what["h_max"]

    def at(epoch: Past) -> Table:
        runs = Listing(live_runs(epoch.pages, epoch.recent, epoch.gone, worker.pages)).runs(spec.name)
        return Table(spec, runs, worker.open_file, h_min, h_max)

    if past.since is None:
        return TableScan(spec, at(past).runs, worker.open_file, columns, h_min, h_max).unsorted()
    runs = [narrowed(r, h_min, h_max) for r in past.changed if r.table == spec.name]
    runs = [r for r in runs if r.h_min <= r.h_max]
    if not runs:
        fields = [spec.schema.field(name) for name in columns]
        return pa.schema([*fields, pa.field(deltas.WEIGHT, pa.int64())]).empty_table()
    fresh = concat_runs(spec, runs, worker.open_file)
    if spec.rule == "weights":
        return deltas.consolidate(visible(fresh, columns))
    keys = KeySet.of(fresh.select(list(spec.key)), spec.key)
    old, new = (at(epoch).lookup(keys, columns).table for epoch in (past.since, past))
    return deltas.consolidate(deltas.concat([deltas.negate(visible(old, columns)), visible(new, columns)]))


def narrowed(ref: RunRef, h_min: int, h_max: int) -> RunRef:
    """The run restricted to a hash range."""
    return replace(ref, h_min=max(ref.h_min, h_min), h_max=min(ref.h_max, h_max))
