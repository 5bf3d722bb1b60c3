"""Selects the rows of a sender that can be among the first n of their key.

Law: a row with n rows of its key before it, at this sender alone, is not among
the first n of all; every other row is kept.  Rows that tie in the order are kept
together.  Rows are returned in their input order.

If key and order fit into one word, one sort of words decides, by the first
column of the order alone.  That keeps too many rows where rows tie in it, so
if there are many ties they are tested again by all columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import tuning
from millpond.buffers import nulls
from millpond.identity import canonical, one_chunk, ties
from millpond.kernels.packed_rows import pack
from millpond.kernels.ranking import arrange
from millpond.ordering import Order, ranks, stable_argsort
from millpond.state.tables.table import KeySet

Ints = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]


def candidates(delta: pa.Table, key: Sequence[str], orders: Sequence[Order], n: int) -> pa.Table:
    """The rows of a delta with fewer than `n` rows of their key before them.

    >>> rows = pa.table({"k": ["a", "b", "a", "a"], "x": [1, 5, 3, 3]})
    >>> candidates(rows, ["k"], [Order("x", descending=True)], 1).to_pylist()
    [{'k': 'b', 'x': 5}, {'k': 'a', 'x': 3}, {'k': 'a', 'x': 3}]
    """
    found = _by_words(delta, key, orders, n)
    if found is not None:
        first, most = found
        delta = _some(delta, first)
        if len(orders) < 2 or delta.num_rows <= tuning.TOP_N_SPARE * most:
            return delta
    return _some(delta, _by_rows(delta, key, orders, n))


def _by_words(
    delta: pa.Table, key: Sequence[str], orders: Sequence[Order], n: int
) -> tuple[Ints, int] | None:
    """(rows kept by the first column of the order, the most that all columns could keep)."""
    packed = pack([canonical(one_chunk(delta.column(name))) for name in key]) if orders else None
    if packed is None:
        return None
    rank = _close_ranks(one_chunk(delta.column(orders[0].column)), orders[0])
    bits = int(rank.max()).bit_length()
    if bits + packed.bits > 64:
        return None
    words = packed.codes << np.uint64(bits) if bits < 64 else np.zeros(len(rank), np.uint64)
    words |= rank
    perm = stable_argsort(words)
    words = words[perm]
    keys = words >> np.uint64(bits) if bits < 64 else np.zeros(len(rank), np.uint64)
    same_key = ties(keys)
    sizes = np.diff(np.append(np.flatnonzero(~same_key), len(keys)))
    return _first(perm, same_key, ties(words), n), int(np.minimum(sizes, n).sum())


def _close_ranks(column: pa.Array, order: Order) -> U64:
    """`ranks` as numbers from 0, with NULL next to the others."""
    found: U64 = ranks(column, order)
    if not column.null_count:
        close: U64 = found - found.min()
        return close
    absent = nulls(column)
    positions = found[~absent]
    low, high = (positions.min(), positions.max()) if len(positions) else (np.uint64(0), np.uint64(0))
    found = found - low + np.uint64(order.nulls_first)
    found[absent] = 0 if order.nulls_first else high - low + np.uint64(1)
    return found


def _by_rows(delta: pa.Table, key: Sequence[str], orders: Sequence[Order], n: int) -> Ints:
    keys = KeySet.of(delta, key)
    if len(keys) == delta.num_rows:
        return np.arange(delta.num_rows)
    columns = {order.column: one_chunk(delta.column(order.column)) for order in orders}
    perm, peer, _ = arrange(columns, keys.inverse, orders, ())
    return _first(perm, ties(keys.inverse[perm]), peer, n)


def _first(perm: Ints, same_key: Bools, peer: Bools, n: int) -> Ints:
    """Sorted rows with fewer than n before them; `same_key` and `peer` say whether a row has the key of, or
    ties with, the one before."""
    places = np.arange(len(perm))
    began = np.maximum.accumulate(np.where(same_key, 0, places))
    first = np.maximum.accumulate(np.where(peer, 0, places))  # of the rows that tie with this one
    return perm[first - began < n]


def _some(delta: pa.Table, rows: Ints) -> pa.Table:
    if len(rows) == delta.num_rows:
        return delta
    mask = np.zeros(delta.num_rows, np.bool_)
    mask[rows] = True
    return delta.filter(pa.array(mask))  # works chunk by chunk; take would locate the chunk of each row
