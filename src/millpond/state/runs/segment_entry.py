"""What the footer of a run file says about one segment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Of new files; a file says which sizes it has (before version 3: 1 << 18).  A block is the least that a
# lookup fetches from a remote store.
BLOCK = 1 << 15  # bytes under one checksum
FENCE_ROWS = BLOCK // 8  # hashes between two fences

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class SegmentEntry:
    """One segment of a run file."""

    table: str
    bucket: int | None
    offset: int  # in the file
    length: int
    rows: int
    h_min: int
    h_max: int
    body: tuple[int, int]  # column data within the segment; Arrow's metadata is around it
    checksums: Hashes  # xxh3_64 per block of the segment
    fences: Hashes  # the hash of every FENCE_ROWS-th row
    constants: Mapping[str, pa.Array]  # columns with one value, as one row
    block: int  # bytes under one checksum, a power of two
    fence_rows: int
    first: int | None = None  # in a stack of tables: the first row of this one
    of: int = 0  # the number of rows of the stack
    names: tuple[str, ...] = ()  # the names of the columns, which a stack identifies by position

    @property
    def bytes(self) -> int:
        """The size of the segment in the file; in a stack, its share."""
        return self.length if self.first is None else self.length * self.rows // self.of
