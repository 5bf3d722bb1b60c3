"""Partners by array position: a lookup cache for rows whose keys are dense integers.

Law: the result equals a separate lookup of every row.  A key is looked up once, however
many rows and batches contain it; after that its partner is an array entry.
Keys with several partners are not supported: once one is found, `find` always returns None.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import hashing, tuning
from millpond.delta import WEIGHT
from millpond.identity import one_chunk

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]
# For some distinct keys: the rows that have one of them, with weights, and the number of each row's key.
Fetch = Callable[[pa.Array], tuple[pa.Table, Ints]]


_NONE, _UNKNOWN = -1, -2


class Partners:
    """The partners found so far; partners of keys far from the current rows may be evicted."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._several = False  # has any key several partners?
        self._low = 0
        self._places: Places = np.empty(0, np.int32)  # by key, from the lowest: the row of its partner
        self.rows: pa.Table | None = None  # all partners
        self.plain = True  # do all of them have weight 1?

    def find(self, column: pa.ChunkedArray) -> Places | None:
        """For each key the row of its partner, or -1; None if keys are not dense or have several partners."""
        if self._several or len(column) < tuning.DENSE_LOOKUP_ROWS_MIN or not hashing.is_injective([column]):
            return None
        ends = pc.min_max(column)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if not self._make_room(low, high, tuning.DENSE_LOOKUP_SLOTS_PER_ROW * len(column)):
            return None
        keys: Ints = one_chunk(column).cast(pa.int64()).to_numpy()
        keys = keys - self._low if self._low else keys
        found = self._places[keys]
        if found.min() == _UNKNOWN:
            fresh = np.zeros(len(self._places), np.bool_)
            fresh[keys[found == _UNKNOWN]] = True
            self._learn(np.flatnonzero(fresh), column.type)
            if self._several:
                return None
            found = self._places[keys]
        return found

    def _make_room(self, low: int, high: int, size_max: int) -> bool:
        """Allocate places for the keys in a range; False if they are too many."""
        if len(self._places) and (self.rows is None or self.rows.num_rows <= size_max):
            end = self._low + len(self._places) - 1
            first, last = min(low, self._low), max(high, end)
            if (first, last) == (self._low, end):
                return True
            if last - first < size_max:
                grown = np.full(last - first + 1, _UNKNOWN, np.int32)
                grown[self._low - first :][: len(self._places)] = self._places
                self._low, self._places = first, grown
                return True
        if 0 < low <= (high - low) // 8 and high < size_max:
            low = 0  # some places stay empty, but keys are places
        if high - low >= size_max:
            return False
        self._low, self._places = low, np.full(high - low + 1, _UNKNOWN, np.int32)
        self.rows = None
        return True

    def _learn(self, places: Ints, kind: pa.DataType) -> None:
        """Fetch the partners of keys that are new."""
        rows, numbers = self._fetch(pa.array(places + self._low).cast(kind))
        if len(np.unique(numbers)) < len(numbers):
            self._several = True
            return
        before = 0 if self.rows is None else self.rows.num_rows
        self._places[places] = _NONE
        self._places[places[numbers]] = np.arange(before, before + rows.num_rows, dtype=np.int32)
        self.rows = rows if self.rows is None else pa.concat_tables([self.rows, rows]).combine_chunks()
        self.plain = self.plain and pc.all(pc.equal(rows.column(WEIGHT), 1)).as_py() is not False
