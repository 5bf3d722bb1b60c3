"""Retracts error rows: each is cancelled in the bucket in which it is stored.

Tasks write error rows and their retractions into the bucket of the epoch, without reading what is stored.  In
an epoch with retractions the coordinator rewrites these rows: a retraction goes to the bucket of its row, or
is dropped if retention or `clear_errors` dropped the row.  So a row's weight in a bucket is never negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from millpond import delta as deltas
from millpond.engine.task.worker import Worker
from millpond.ordering import Order
from millpond.state.manifest.snapshot import concat_runs
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.error_rows import ERRORS_SPEC
from millpond.state.tables.table import KeySet, Table

NAMES = [*ERRORS_SPEC.schema.names, deltas.WEIGHT]
SETTLED = 1  # the task number in the file name of such rows
FEW = 32  # up to this many rows are looked up one by one, more of them by step
# The order in which runs are sorted anyway, so a row can be looked up by its text.
_BY_ROW = replace(ERRORS_SPEC, order=(Order("row"), Order("reason")))

Buckets = dict[int | None, list[RunRef]]


def by_bucket(runs: Iterable[RunRef]) -> Buckets:
    found: Buckets = {}
    for ref in runs:
        found.setdefault(ref.bucket, []).append(ref)
    return found


def settled(
    worker: Worker, fresh: Sequence[RunRef], stored_runs: Sequence[RunRef], bucket: int | None
) -> Mapping[int | None, pa.Table]:
    """The rows of `fresh` by bucket: new rows in `bucket`, retractions in the bucket of their row."""
    new_rows = deltas.consolidate(concat_runs(ERRORS_SPEC, fresh, worker.open_file))
    ends = deltas.weights(new_rows) < 0
    found: dict[int | None, pa.Table] = {bucket: new_rows.filter(pa.array(~ends))}
    owed = new_rows.filter(pa.array(ends))
    before = by_bucket(stored_runs)
    taken, owed = _retracted(worker, owed, before.pop(bucket, []))
    if taken.num_rows:
        found[bucket] = deltas.concat([found[bucket], taken])
    for older in sorted(before, key=lambda b: -(2**63) if b is None else b, reverse=True):
        if not owed.num_rows:
            break
        taken, owed = _retracted(worker, owed, before[older])
        if taken.num_rows:
            found[older] = taken
    return found


def _retracted(worker: Worker, owed: pa.Table, runs: Sequence[RunRef]) -> tuple[pa.Table, pa.Table]:
    """(retractions of rows that these runs contain, the other retractions), both with negative weights."""
    if not owed.num_rows or not runs:
        return owed.slice(0, 0), owed
    after = deltas.consolidate(deltas.concat([owed, _stored_errors(worker, owed, runs)]))
    rest = after.filter(pa.array(deltas.weights(after) < 0))
    return deltas.consolidate(deltas.concat([owed, deltas.negate(rest)])), rest


def _stored_errors(worker: Worker, rows: pa.Table, runs: Sequence[RunRef]) -> pa.Table:
    """These rows as stored in some runs, perhaps with other rows of the same steps."""
    table = Table(_BY_ROW, runs, worker.open_file)
    if rows.num_rows > FEW:
        return table.lookup(KeySet.of(rows, _BY_ROW.key)).table.select(NAMES)
    found = []
    for position in range(rows.num_rows):
        row = rows.slice(position, 1).combine_chunks()
        at = row.column("row").chunk(0)
        found.append(table.range(KeySet.of(row, _BY_ROW.key), at, at).table.select(NAMES))
    return pa.concat_tables(found)
