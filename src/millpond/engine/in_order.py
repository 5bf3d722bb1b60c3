"""Rows of a step in the order of a key's hashes, found once for all filters of those rows.

Law: what a filter keeps is the same multiset in any order.  Its one reader groups by the key: rows that come
with their hashes, in their order, and of one key where they have one hash, are grouped already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.delta import HASH
from millpond.identity import one_chunk, same_rows, take

ROWS_MAX = 20_000  # of more, each reader finds a way of its own


@dataclass(frozen=True)
class InOrder:
    order: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]  # in that order

    @staticmethod
    def of(rows: pa.Table, key: Sequence[str]) -> InOrder | None:
        """None for many rows, and where two keys share a hash.

        >>> found = InOrder.of(pa.table({"k": [7, 5, 7]}), ["k"])
        >>> found.kept(pa.table({"x": [1, 2, 3]}), pa.chunked_array([[True, False, True]])).column_names
        ['x', '_h']
        """
        if rows.num_rows > ROWS_MAX:
            return None
        columns = [one_chunk(rows.column(name)) for name in key]
        hashes = hashing.hash_columns(columns, rows.num_rows)
        order = np.argsort(hashes)
        hashes = hashes[order]
        again = np.flatnonzero(hashes[1:] == hashes[:-1])
        if not hashing.is_injective(columns) and not same_rows(columns, order[again], order[again + 1]):
            return None
        return InOrder(order, hashes)

    def kept(self, rows: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
        """The rows where a mask is true, with their hashes."""
        places, hashes = self.places(mask)
        columns = [take(_as_it_is(column), places) for column in rows.columns]
        columns.append(pa.array(hashes))
        return pa.table(columns, names=[*rows.column_names, HASH])

    def places(self, mask: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """Where a mask is true, in this order, and the hashes there."""
        wanted = true_in(mask)[self.order]
        return self.order[wanted], self.hashes[wanted]


def true_in(mask: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Where a mask is true; NULL is not."""
    one = one_chunk(mask)
    found: npt.NDArray[np.bool_] = (one.fill_null(False) if one.null_count else one).to_numpy(
        zero_copy_only=False
    )
    return found


def _as_it_is(column: pa.ChunkedArray) -> pa.Array:
    """One array of the same type, whatever its encoding."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
