"""Rows of another step, selected by position: filters of the same rows pass them on without copying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import delta as deltas
from millpond.delta import HASH, WEIGHT
from millpond.identity import one_chunk, take

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Picked:
    """Rows of another step, selected by their positions and not copied yet."""

    rows: pa.Table
    places: Ints
    names: Mapping[str, str]  # column names as they are read -> names in `rows`
    hashes: Hashes | None  # of the key, if the positions are sorted by them

    @property
    def num_rows(self) -> int:
        return len(self.places)

    def table(self) -> pa.Table:
        """The selected rows, copied."""
        columns = {
            name: take(one_chunk(self.rows.column(stored)), self.places)
            for name, stored in self.names.items()
        }
        if WEIGHT in self.rows.column_names:
            columns[WEIGHT] = take(one_chunk(self.rows.column(WEIGHT)), self.places)
        if self.hashes is not None:
            columns[HASH] = pa.array(self.hashes)
        return pa.table(columns)

    def weights(self) -> Ints:
        return deltas.weights(self.rows)[self.places]
