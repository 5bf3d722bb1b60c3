"""Rows for user code, one after the other; each is made when its turn comes.

Columns are decoded by stretches, so that the Python objects of a few thousand
rows lie in the processor's cache and no more of them in memory.  User code may
change lists and dicts inside of a row: a second pass is given a feed of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from operator import length_hint
from typing import Any

import pyarrow as pa

from millpond.operators.flat_map import Row, row_type
from millpond.operators.python_values import python_values

STRETCH = 8192  # rows


class Feed:
    """
    >>> feed = Feed(pa.table({"n": [3, 4]}))
    >>> next(feed.rows).n, feed.given
    (3, 1)
    """

    def __init__(self, table: pa.Table) -> None:
        self._begun = 0  # rows of the stretches so far
        self._left: Any = iter(())  # of the stretch at hand
        self.rows: Iterator[Row] = chain.from_iterable(self._stretches(table))

    @property
    def given(self) -> int:
        """How many rows were given so far; may be asked from another thread."""
        return self._begun - length_hint(self._left)

    def _stretches(self, table: pa.Table) -> Iterator[Iterator[Row]]:
        kind = row_type(tuple(table.column_names))
        make = partial(tuple.__new__, kind)  # row_of, without running Python
        for start in range(0, table.num_rows, STRETCH):
            size = min(STRETCH, table.num_rows - start)
            self._begun += size
            columns = [iter(python_values(c.slice(start, size))) for c in table.columns]
            self._left = columns[0]
            yield map(make, zip(*columns, strict=True))
