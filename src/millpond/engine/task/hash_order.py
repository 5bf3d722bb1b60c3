"""The order of a step's rows by key hash, computed once for all filters of those rows.

Law: a filter keeps the same multiset in any order.  Its only reader groups by the key: rows that arrive with
their hashes, sorted by them, are grouped already if no two keys share a hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing, tuning
from millpond.delta import HASH
from millpond.identity import one_chunk, same_rows, take


@dataclass(frozen=True)
class HashOrder:
    order: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]  # sorted

    @staticmethod
    def of(rows: pa.Table, key: Sequence[str]) -> HashOrder | None:
        """The order, or None for many rows and where two keys share a hash.

        >>> found = HashOrder.of(pa.table({"k": [7, 5, 7]}), ["k"])
        >>> found.selected(pa.table({"x": [1, 2, 3]}), pa.chunked_array([[True, False, True]])).column_names
        ['x', '_h']
        """
        if rows.num_rows > tuning.HASH_ORDER_ROWS_MAX:
            return None
        columns = [one_chunk(rows.column(name)) for name in key]
        hashes = hashing.hash_columns(columns, rows.num_rows)
        order = np.argsort(hashes)
        hashes = hashes[order]
        again = np.flatnonzero(hashes[1:] == hashes[:-1])
        if not hashing.is_injective(columns) and not same_rows(columns, order[again], order[again + 1]):
            return None
        return HashOrder(order, hashes)

    def selected(self, rows: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
        """The rows where a mask is true, sorted, with their hashes."""
        positions, hashes = self.positions(mask)
        columns = [take(_as_it_is(column), positions) for column in rows.columns]
        columns.append(pa.array(hashes))
        return pa.table(columns, names=[*rows.column_names, HASH])

    def positions(self, mask: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """The positions where a mask is true, in hash order, and their hashes."""
        wanted = true_in(mask)[self.order]
        return self.order[wanted], self.hashes[wanted]


def true_in(mask: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """A mask as a numpy array; NULL counts as false."""
    one = one_chunk(mask)
    is_true: npt.NDArray[np.bool_] = (one.fill_null(False) if one.null_count else one).to_numpy(
        zero_copy_only=False
    )
    return is_true


def _as_it_is(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array of the same type, with any encoding."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
