"""Feeds rows to user code one by one; each row is built when it is read.

Columns are decoded in chunks, so that the Python objects of a few thousand rows
fit into the processor's cache and no more of them are in memory.  User code may
modify lists and dicts inside a row, so a second pass uses a new feed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from operator import length_hint
from typing import Any

import pyarrow as pa

from millpond.kernels.python_rows import Row, row_type
from millpond.kernels.python_values import python_values

CHUNK_ROWS = 8192  # rows per chunk


class RowFeed:
    """
    >>> feed = RowFeed(pa.table({"n": [3, 4]}))
    >>> next(feed.rows).n, feed.rows_read
    (3, 1)
    """

    def __init__(self, table: pa.Table) -> None:
        self._begun = 0  # rows of the chunks so far
        self._left: Any = iter(())  # of the current chunk
        self.rows: Iterator[Row] = chain.from_iterable(self._chunks(table))

    @property
    def rows_read(self) -> int:
        """How many rows have been read; another thread may call this."""
        return self._begun - length_hint(self._left)

    def _chunks(self, table: pa.Table) -> Iterator[Iterator[Row]]:
        kind = row_type(tuple(table.column_names))
        make = partial(tuple.__new__, kind)  # like row_of, but without running Python
        for start in range(0, table.num_rows, CHUNK_ROWS):
            size = min(CHUNK_ROWS, table.num_rows - start)
            self._begun += size
            columns = [iter(python_values(c.slice(start, size))) for c in table.columns]
            self._left = columns[0]
            yield map(make, zip(*columns, strict=True))
