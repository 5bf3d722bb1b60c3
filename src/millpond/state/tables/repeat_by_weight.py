"""Turns rows with weights into plain rows: a row of weight n is repeated n times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from millpond import delta as deltas
from millpond.delta import WEIGHT
from millpond.errors import InvalidError

ROWS_MAX = 1 << 27  # the maximum of one table of repeated rows; their row numbers alone take a gigabyte
BYTES_MAX = 4 << 30  # of one table of repeated rows
BATCH_ROWS = 122_880


def repeat_by_weight(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Repeat these columns of each row by its weight; no copy if every weight is 1.

    >>> repeat_by_weight(pa.table({"x": ["a", "b"], "_w": [2, 1]}), ["x"])["x"].to_pylist()
    ['a', 'a', 'b']
    """
    if columns and WEIGHT not in rows.column_names:
        return rows.select(list(columns))
    weights = deltas.weights(rows)
    plain = rows.select(list(columns))
    if (weights == 1).all():
        return plain
    total = int(weights.sum())
    if not columns:
        return pa.table({"": pa.nulls(total)}).select([])
    check_size(total, plain.nbytes * total // max(1, plain.num_rows))
    return plain.take(pa.array(np.repeat(np.arange(len(weights)), weights)))


def repeat_in_batches(
    rows: pa.Table, columns: Sequence[str], batch_rows: int = BATCH_ROWS
) -> Iterator[pa.Table]:
    """The same, in batches with a bounded number of rows."""
    if columns and WEIGHT not in rows.column_names:
        yield rows.select(list(columns))
        return
    weights = deltas.weights(rows)
    plain = rows.select(list(columns))
    if (weights == 1).all() or not columns:
        yield repeat_by_weight(rows, columns)
        return
    ends = np.cumsum(weights)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, batch_rows):
        copies = np.arange(start, min(start + batch_rows, total))
        yield plain.take(pa.array(np.searchsorted(ends, copies, "right")))


def check_size(rows: int, size: int) -> None:
    """Refuse a table of repeated rows that is likely to exceed the memory."""
    if rows > ROWS_MAX or size > BYTES_MAX:
        raise InvalidError(
            f"{rows} rows do not fit into one table",
            detail="equal rows are stored once, with a count, and there are too many of them to repeat",
            hint="ask for less with SELECT, which reads in batches, or follow the view's changes",
        )
