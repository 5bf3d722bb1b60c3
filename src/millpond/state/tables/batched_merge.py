"""Merges the runs of several small tables of one stack shape in one call.

Law: for each table it returns what `merge_segments` returns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH, WEIGHT
from millpond.identity import same_rows, take
from millpond.state.runs.merge import OpenFile
from millpond.state.runs.missing_column import Fill
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.stacked_rows import RowBatch, by_position, row_batches
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]


def merge(
    specs: Sequence[TableSpec],
    runs: Sequence[Sequence[RunRef]],
    drop_tombstones: Sequence[bool],
    open_file: OpenFile,
) -> tuple[list[int], dict[str, pa.Array]] | None:
    """(rows of each table, all rows as one stack); None if the tables must be merged one by one."""
    batches = row_batches(specs, runs, open_file)
    if not batches:
        return None
    spec = by_position(specs[0])
    ends = np.cumsum([len(batch.hashes) for batch in batches])
    hashes = np.concatenate([batch.hashes for batch in batches])
    weights: Ints = _column(batches, WEIGHT, None).to_numpy()
    columns = {name: _column(batches, name, spec.fill.get(name)) for name in spec.schema.names}
    rows_of: list[list[Ints]] = [[] for _ in specs]
    for batch, end in zip(batches, ends.tolist(), strict=True):
        begin = end - len(batch.hashes)
        for number, first, last in batch.tables:
            rows_of[number].append(np.arange(begin + first, begin + last))
    if not all(rows_of):
        return None
    live_rows: list[Ints] = []
    twice: list[tuple[Ints, Ints]] = []
    for row_ranges, drop in zip(rows_of, drop_tombstones, strict=True):
        rows = np.concatenate(row_ranges)
        rows = rows[np.argsort(hashes[rows], kind="stable")]  # among rows with one hash, the newest is first
        ordered = hashes[rows]
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        twice.append((rows[again], rows[again + 1]))
        rows = np.delete(rows, again + 1)
        live_rows.append(rows[weights[rows] != 0] if drop else rows)
    key = [columns[name] for name in spec.key]
    before, after = (np.concatenate(side) for side in zip(*twice, strict=True))
    if not hashing.is_injective(key) and not same_rows(key, before, after):
        return None
    chosen = np.concatenate(live_rows)
    columns_merged = {HASH: pa.array(hashes[chosen])}
    columns_merged |= {name: take(column, chosen) for name, column in columns.items()}
    columns_merged[WEIGHT] = pa.array(weights[chosen])
    return [len(rows) for rows in live_rows], columns_merged


def _column(batches: Sequence[RowBatch], name: str, fill: Fill | None) -> pa.Array:
    arrays = [batch.source.slice(name, 0, len(batch.hashes), fill) for batch in batches]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
