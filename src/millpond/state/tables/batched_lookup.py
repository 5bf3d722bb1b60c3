"""Point lookups in several small tables of one stack shape in one call.

Law: for each table it returns what `Table.lookup_one` returns.  Tables that share a stack are read by one
gather.  If hashes do not identify keys, or a run cannot be read together with the others, it returns None,
and the caller looks up table by table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.state.runs.merge import OpenFile
from millpond.state.runs.point_lookup import FoundRows, gather, keys_match, live
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import stacked_name
from millpond.state.tables.stacked_rows import RowBatch, by_position, row_batches
from millpond.state.tables.table_spec import TableSpec

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class KeysByTable:
    """The keys of all tables, table by table, each in the order of hashes."""

    hashes: Hashes
    columns: Sequence[pa.Array]  # the columns of the key
    starts: Ints  # where the keys of each table begin, and the end of the last


def lookup(
    specs: Sequence[TableSpec],
    runs: Sequence[Sequence[RunRef]],
    open_file: OpenFile,
    keys: KeysByTable,
    positions: Sequence[int],
) -> tuple[Bools, dict[int, pa.Array]] | None:
    """Look up the one row of each key: (found, columns by position); zero or NULL if nothing is found."""
    batches = row_batches(specs, runs, open_file)
    if batches is None:
        return None
    spec = by_position(specs[0])
    rows = _newest(batches, keys)
    if not keys_match(spec, rows, dict(zip(spec.key, keys.columns, strict=True))):
        return None
    rows = live(rows)
    is_found = np.zeros(len(keys.hashes), np.bool_)
    for one in rows:
        is_found[one.key] = True
    return is_found, {p: gather(spec, stacked_name(p), rows, len(keys.hashes)) for p in positions}


def _newest(batches: Sequence[RowBatch], keys: KeysByTable) -> list[FoundRows]:
    """The position of the newest row of each key, by hashes alone."""
    left = np.arange(len(keys.hashes))
    newest = []
    for batch in batches:
        if not len(left):
            break
        hashes = keys.hashes[left]
        bounds = left.searchsorted(keys.starts).tolist()
        row = np.full(len(left), -1, np.int64)
        for number, first, last in batch.tables:
            start, stop = bounds[number], bounds[number + 1]
            if stop > start:
                at = batch.hashes[first:last].searchsorted(hashes[start:stop])
                row[start:stop] = np.minimum(at, last - first - 1) + first
        hit = (row >= 0) & (batch.hashes[row] == hashes)
        if hit.any():
            newest.append(FoundRows(batch.source, left[hit], row[hit]))
            left = left[~hit]
    return newest
