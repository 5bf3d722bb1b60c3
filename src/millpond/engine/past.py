"""What a backfill reads: a table as it was at an epoch, or what changed in it between two.

Law 5: the change is read from the runs that the epochs between added, never from
merges, and from the keys they touch.  A hash range of a change takes that range of
the table from the one epoch to the other, so any order of ranges and tables goes
through sums that a table can hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from millpond import delta as deltas
from millpond.engine.spec import Past
from millpond.engine.worker import Worker
from millpond.sources.source import Split
from millpond.state.held import held_rows
from millpond.state.listing import Listing, live_runs
from millpond.state.run_ref import RunRef
from millpond.state.snapshot import concat_runs, visible
from millpond.state.table import KeySet, Table
from millpond.state.table_spec import TableSpec


def past_rows(past: Past, spec: TableSpec, columns: Sequence[str], split: Split, worker: Worker) -> pa.Table:
    """One hash range of a table at the epoch of `past`; of what changed since another, where it says so."""
    h_min, h_max = split.what["h_min"], split.what["h_max"]

    def at(epoch: Past) -> Table:
        runs = Listing(live_runs(epoch.pages, epoch.recent, epoch.gone, worker.pages)).runs(spec.name)
        return Table(spec, runs, worker.open_file, h_min, h_max)

    if past.since is None:
        return held_rows(spec, at(past).runs, worker.open_file, h_min, h_max, columns)
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
    """The part of a run that lies in a hash range."""
    return replace(ref, h_min=max(ref.h_min, h_min), h_max=min(ref.h_max, h_max))
