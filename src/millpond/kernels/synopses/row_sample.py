"""A uniform sample of k rows of a group: those with the lowest priorities.

Law: the priority of a row is a hash of its value, of its place among the epoch's rows of the group in
their order by value, and of the number of rows before them.  So a sample is a function of the stored
sample and the epoch's rows, and every row has the same chance to be in it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.hashing import hash_array
from millpond.kernels.synopses.frequent_values import listed, unlisted
from millpond.kernels.synopses.item_hashes import mixed
from millpond.ordering import Order, ranks

Ints = npt.NDArray[np.int64]


def sample_type(kind: pa.DataType) -> pa.DataType:
    """Values with their priorities; rows that came in this epoch have none yet."""
    return pa.list_(pa.struct([pa.field("value", kind), pa.field("n", pa.uint64())]))


def collected(values: pa.Array, groups: Ints, n_groups: int) -> pa.Array:
    """The rows of each group, without priorities."""
    return listed(values, pa.nulls(len(values), pa.uint64()), groups, n_groups)


def drawn(samples: pa.Array, seen: Ints, k: int) -> pa.Array:
    """Give rows without a priority one, and keep the k lowest of each group; `seen` counts all its rows."""
    values, priority, groups = unlisted(samples)
    if not len(values):
        return samples
    fresh = np.flatnonzero(priority.is_null().to_numpy(zero_copy_only=False))
    numbers = priority.fill_null(0).to_numpy(zero_copy_only=False).copy()
    if len(fresh):
        new = values.take(pa.array(fresh))
        order = np.lexsort((ranks(new, Order("")), groups[fresh]))
        mine = groups[fresh][order]
        sizes = np.bincount(mine, minlength=len(samples))
        positions = np.arange(len(mine)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        salt = mixed((seen[mine] - positions).astype(np.uint64), 71)
        numbers[fresh[order]] = mixed(hash_array(new)[order] ^ salt, 72)
    by_priority = np.lexsort((ranks(values, Order("")), numbers, groups))
    sizes = np.bincount(groups, minlength=len(samples))
    rank = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = by_priority[rank < k]
    return listed(values.take(pa.array(chosen)), pa.array(numbers[chosen]), groups[chosen], len(samples))
