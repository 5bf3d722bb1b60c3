"""Frequent values (Misra-Gries): the values of a group that occur most often, from bounded counters.

Law: no count is too high, and none is too low by more than n / (counters + 1) for n rows.  A list is
reduced by the owner of its group once per epoch, from all counts together, so the result does not
depend on order.  A group with no more distinct values than counters is counted exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.ordering import Order, ranks

Ints = npt.NDArray[np.int64]


def counters(k: int) -> int:
    """The number of counters for the k most frequent values."""
    return max(256, 8 * k)


def counted(values: pa.Array, counts: Ints, groups: Ints, n_groups: int, limit: int | None) -> pa.Array:
    """For each group its values with the sum of their counts, most frequent first; NULL for none.

    With a limit on the number of values, all counts are reduced by that of the first value beyond it.
    """
    kind = listed_type(values.type)
    if not len(values):
        return pa.nulls(n_groups, kind)
    rank = ranks(values, Order(""))
    order = np.lexsort((rank, groups))
    rank, groups, counts = rank[order], groups[order], counts[order]
    new = (groups[1:] != groups[:-1]) | (rank[1:] != rank[:-1])
    starts = np.flatnonzero(np.concatenate(([True], new)))
    total = np.add.reduceat(counts, starts)
    groups, chosen, rank = groups[starts], order[starts], rank[starts]
    by_count = np.lexsort((rank, -total, groups))
    groups, chosen, total = groups[by_count], chosen[by_count], total[by_count]
    if limit is not None:
        sizes = np.bincount(groups, minlength=n_groups)
        firsts = np.cumsum(sizes) - sizes
        too_many = np.flatnonzero(sizes > limit)
        less = np.zeros(n_groups, np.int64)
        less[too_many] = total[firsts[too_many] + limit]
        total = total - less[groups]
        is_kept = np.arange(len(groups)) - firsts[groups] < limit  # a count of 0 is still a candidate
        groups, chosen, total = groups[is_kept], chosen[is_kept], total[is_kept]
    return listed(values.take(pa.array(chosen)), pa.array(total), groups, n_groups)


def listed_type(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([pa.field("value", kind), pa.field("n", pa.int64())]))


def listed(values: pa.Array, numbers: pa.Array, groups: Ints, n_groups: int) -> pa.Array:
    """Lists of (value, n) for rows that are sorted by group; NULL for a group without rows."""
    sizes = np.bincount(groups, minlength=n_groups)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    pairs = pa.StructArray.from_arrays(
        [values, numbers], fields=[pa.field("value", values.type), pa.field("n", numbers.type)]
    )
    made = pa.ListArray.from_arrays(pa.array(offsets), pairs)
    return made if sizes.all() else made.take(pa.array(np.arange(n_groups), mask=sizes == 0))


def unlisted(lists: pa.Array) -> tuple[pa.Array, Any, Ints]:
    """The values, the numbers and the list that each belongs to."""
    flat = lists.flatten()
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return flat.field(0), flat.field(1), np.repeat(np.arange(len(lists)), lengths)


def first_values(lists: pa.Array, k: int) -> pa.Array:
    """The first k values of each list."""
    values, _, groups = unlisted(lists)
    sizes = np.bincount(groups, minlength=len(lists))
    rank = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_kept = rank < k
    short = np.minimum(sizes, k)
    offsets = np.concatenate([[0], np.cumsum(short)]).astype(np.int32)
    made = pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(np.flatnonzero(is_kept))))
    return made if short.all() else made.take(pa.array(np.arange(len(lists)), mask=short == 0))
