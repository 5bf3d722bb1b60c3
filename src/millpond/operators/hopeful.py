"""Which rows of a sender may be among the first of their key.

Law: a row with n rows of its key before it, at this sender alone, is not among
the first n of all; every other row stays.  Rows that tie in the order stay
together.  Rows come out as they lay.

Where key and order fit into one word, one sort of words tells: by the first
column of the order alone, which keeps a row too many where rows tie in it, so
that many ties are looked at again by all columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.buffers import nulls
from millpond.identity import canonical, one_chunk, ties
from millpond.operators.packed_rows import pack
from millpond.operators.ranked import arrange
from millpond.ordering import Order, ranks, stable_argsort
from millpond.state.table import KeySet

Ints = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

SPARE = 1.1  # so many times the rows that can be among the first are few enough


def hopeful(delta: pa.Table, key: Sequence[str], orders: Sequence[Order], n: int) -> pa.Table:
    """The rows of a delta with fewer than `n` rows of their key before them.

    >>> rows = pa.table({"k": ["a", "b", "a", "a"], "x": [1, 5, 3, 3]})
    >>> hopeful(rows, ["k"], [Order("x", descending=True)], 1).to_pylist()
    [{'k': 'b', 'x': 5}, {'k': 'a', 'x': 3}, {'k': 'a', 'x': 3}]
    """
    found = _by_words(delta, key, orders, n)
    if found is not None:
        first, most = found
        delta = _some(delta, first)
        if len(orders) < 2 or delta.num_rows <= SPARE * most:
            return delta
    return _some(delta, _by_rows(delta, key, orders, n))


def _by_words(
    delta: pa.Table, key: Sequence[str], orders: Sequence[Order], n: int
) -> tuple[Ints, int] | None:
    """(the rows that stay by the first column of the order, how many could stay by all of them)."""
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
    """`ranks` from 0 on, NULL next to the others."""
    found: U64 = ranks(column, order)
    if not column.null_count:
        close: U64 = found - found.min()
        return close
    absent = nulls(column)
    given = found[~absent]
    low, high = (given.min(), given.max()) if len(given) else (np.uint64(0), np.uint64(0))
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
    """Rows with fewer than n before them: they are in order, and tell if they have the key of, or tie with,
    the one before."""
    places = np.arange(len(perm))
    began = np.maximum.accumulate(np.where(same_key, 0, places))
    first = np.maximum.accumulate(np.where(peer, 0, places))  # of the rows that tie with this one
    return perm[first - began < n]


def _some(delta: pa.Table, rows: Ints) -> pa.Table:
    if len(rows) == delta.num_rows:
        return delta
    mask = np.zeros(delta.num_rows, np.bool_)
    mask[rows] = True
    return delta.filter(pa.array(mask))  # chunk by chunk, where a take would look for each row
