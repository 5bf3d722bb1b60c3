"""Rows as user code gets them: plain, as often as they count, by key and in order.

The order of a key's rows is that of (event time, origin), whatever the tasks
they came through; without an origin it is that of all their columns (law 3).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, ORIGIN, WEIGHT, arrange, weights
from millpond.identity import one_chunk
from millpond.operators.event_time import micros
from millpond.operators.kernel import visible

Ints = npt.NDArray[np.int64]


def plain_rows(delta: pa.Table) -> pa.Table:
    """Every row as often as it counts, without weights and encodings."""
    times = weights(delta)
    if (times > 1).any():
        delta = delta.take(pa.array(np.repeat(np.arange(len(times)), times)))
    arrays = {name: delta.column(name) for name in delta.column_names if name != WEIGHT}
    for name, column in arrays.items():
        kind = column.type
        if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            arrays[name] = column.cast(kind.value_type)
    return pa.table(arrays)


def came(rows: pa.Table) -> Ints:
    """A number for each row that grows in the order in which they came."""
    if ORIGIN in rows.column_names:
        found: Ints = one_chunk(rows.column(ORIGIN)).to_numpy()
        return found
    shown = visible(rows.drop_columns([HASH]) if HASH in rows.column_names else rows)
    perm, _ = arrange([one_chunk(c) for c in shown.columns], rows.num_rows)
    rank = np.empty(len(perm), np.int64)
    rank[perm] = np.arange(len(perm))
    return rank


def by_key(rows: pa.Table, key: Ints, time: str | None) -> Ints:
    """The rows by the number of their key, then in order."""
    parts = [came(rows), key]
    if time is not None:
        parts.insert(1, micros(rows.column(time))[0])
    return np.lexsort(parts)
