"""Finds the distinct keys of dense integers in an array indexed by key, without hashing or sorting rows.

Law: it returns what `KeySet.of` returns by sorting hashes, bit for bit: the distinct keys in the order of
their
hashes, and the number of each row's key.  Only the distinct keys are hashed and sorted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import hashing, tuning
from millpond.ordering import stable_argsort

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


def numbered(columns: Sequence[pa.Array]) -> tuple[Hashes, pa.Array, Ints] | None:
    """(hashes of the distinct keys, ascending; the keys; the number of each row's key), if keys are dense.

    >>> hashes, keys, numbers = numbered([pa.array([7, 9, 7, 8] * 5000)])
    >>> keys.take(pa.array(numbers)).to_pylist()[:4], bool((hashes[1:] > hashes[:-1]).all())
    ([7, 9, 7, 8], True)
    """
    if not columns or len(columns[0]) < tuning.DENSE_ROWS_MIN or not hashing.is_injective(columns):
        return None
    (column,) = columns
    ends = pc.min_max(column)
    low, size = ends["min"].as_py(), ends["max"].as_py() - ends["min"].as_py() + 1
    if size > tuning.DENSE_SLOTS_PER_ROW * len(column):
        return None
    places = column.cast(pa.int64()).to_numpy()
    if low:
        places = places - low
    there = np.zeros(size, np.bool_)
    there[places] = True
    distinct = np.flatnonzero(there)
    keys = pa.array(distinct + low).cast(column.type)
    hashes = hashing.hash_columns([keys], len(keys))
    order = stable_argsort(hashes)
    number = np.empty(size, np.int64)
    number[distinct[order]] = np.arange(len(order))
    return hashes[order], keys.take(pa.array(order)), number[places]
