"""Sheds rows of a split as it is read, and reads those that were shed again.

Law: whether a row is kept depends on its place in the split, or on its key, alone.  So a split that is read
again keeps the same rows (law 3), and a recovery adds exactly the rows that were shed: afterwards every row
of the split counts once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import WEIGHT
from millpond.identity import one_chunk
from millpond.kernels.synopses.item_hashes import mixed
from millpond.sources.source import Split


def with_key(columns: Sequence[str], split: Split) -> tuple[str, ...]:
    """The columns to read: also those that decide which rows are kept."""
    return tuple(dict.fromkeys((*columns, *split.keep_by)))


def without_shed_rows(
    table: pa.Table, columns: Sequence[str], split: Split, before: int
) -> tuple[pa.Table, int]:
    """The rows that the epoch takes, with weights, and how many of this table are left out.

    `before` rows of the split were read already.
    """
    kept = _kept(table, split, before)
    weights = np.where(kept, 1 if split.keep_by else split.keeps, 0)
    if split.recovers:
        weights = 1 - weights
    taken = pa.array(np.flatnonzero(weights))
    left_out = int((~kept).sum())
    read = [name for name in table.column_names if name in columns]
    rows = pa.table(
        [*(table.column(name).take(taken) for name in read), pa.array(weights[weights != 0], pa.int64())],
        schema=pa.schema([*(table.schema.field(name) for name in read), pa.field(WEIGHT, pa.int64())]),
    )
    return rows, -left_out if split.recovers else left_out


def _kept(table: pa.Table, split: Split, before: int) -> npt.NDArray[np.bool_]:
    limit = np.uint64((2**64 - 1) // split.keeps)
    if split.keep_by:
        given: list[Any] = [one_chunk(table.column(name)) for name in split.keep_by]
        return mixed(hashing.hash_columns(given, table.num_rows), 91) <= limit
    name = json.dumps(split.what, sort_keys=True)
    first = hashing.hash_array(pa.array([name]))[0]
    places = np.arange(before, before + table.num_rows, dtype=np.uint64)
    return mixed(mixed(places, 92) ^ first, 93) <= limit
