"""Error rows that are taken back: each is cancelled in the bucket in which it lies.

Tasks write error rows and their ends into the bucket of the epoch, without a look at what is there.  In an
epoch with ends the coordinator writes all of them again: an end goes to the bucket in which its row came, or
nowhere if retention or `clear_errors` dropped that.  So no bucket ever holds less than nothing of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from millpond import delta as deltas
from millpond.engine.worker import Worker
from millpond.operators.materialize import ERRORS_SPEC
from millpond.ordering import Order
from millpond.state.run_ref import RunRef
from millpond.state.snapshot import concat_runs
from millpond.state.table import KeySet, Table

NAMES = [*ERRORS_SPEC.schema.names, deltas.WEIGHT]
SETTLED = 1  # the number in the name of a file of such rows, where a task has its own
FEW = 32  # rows that are looked for one by one; more of them by their steps
# As runs are sorted anyway: a row can be looked for by its text.
_BY_ROW = replace(ERRORS_SPEC, order=(Order("row"), Order("reason")))

Buckets = dict[int | None, list[RunRef]]


def by_bucket(runs: Iterable[RunRef]) -> Buckets:
    found: Buckets = {}
    for ref in runs:
        found.setdefault(ref.bucket, []).append(ref)
    return found


def settled(
    worker: Worker, fresh: Sequence[RunRef], held: Sequence[RunRef], bucket: int | None
) -> Mapping[int | None, pa.Table]:
    """The rows of `fresh` and their ends, each in its bucket: new ones in `bucket`."""
    came = deltas.consolidate(concat_runs(ERRORS_SPEC, fresh, worker.open_file))
    ends = deltas.weights(came) < 0
    found: dict[int | None, pa.Table] = {bucket: came.filter(pa.array(~ends))}
    owed = came.filter(pa.array(ends))
    before = by_bucket(held)
    taken, owed = _taken(worker, owed, before.pop(bucket, []))
    if taken.num_rows:
        found[bucket] = deltas.concat([found[bucket], taken])
    for place in sorted(before, key=lambda b: -(2**63) if b is None else b, reverse=True):
        if not owed.num_rows:
            break
        taken, owed = _taken(worker, owed, before[place])
        if taken.num_rows:
            found[place] = taken
    return found


def _taken(worker: Worker, owed: pa.Table, runs: Sequence[RunRef]) -> tuple[pa.Table, pa.Table]:
    """(what of the owed rows these runs hold, what is still owed), both with negative weights."""
    if not owed.num_rows or not runs:
        return owed.slice(0, 0), owed
    after = deltas.consolidate(deltas.concat([owed, _held(worker, owed, runs)]))
    rest = after.filter(pa.array(deltas.weights(after) < 0))
    return deltas.consolidate(deltas.concat([owed, deltas.negate(rest)])), rest


def _held(worker: Worker, rows: pa.Table, runs: Sequence[RunRef]) -> pa.Table:
    """These rows as some runs hold them, perhaps with others of their steps."""
    table = Table(_BY_ROW, runs, worker.open_file)
    if rows.num_rows > FEW:
        return table.lookup(KeySet.of(rows, _BY_ROW.key)).table.select(NAMES)
    found = []
    for place in range(rows.num_rows):
        row = rows.slice(place, 1).combine_chunks()
        at = row.column("row").chunk(0)
        found.append(table.range(KeySet.of(row, _BY_ROW.key), at, at).table.select(NAMES))
    return pa.concat_tables(found)
