"""Is a contender's answer the batch answer?

Law: nothing is timed whose result on a small input differs from DuckDB's over the same files by a single row.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = ("auction", "n", "total")


def ordered(table: pa.Table) -> pa.Table:
    """The agreed columns as int64, by auction."""
    chosen = table.select(COLUMNS).cast(pa.schema([(name, pa.int64()) for name in COLUMNS]))
    return chosen.combine_chunks().sort_by("auction")


def differences(found: pa.Table, expected: pa.Table) -> list[str]:
    """What is wrong with `found`, in words; nothing when it is the same multiset of rows.

    >>> rows = lambda *rows: pa.table(list(zip(*rows)), names=COLUMNS)
    >>> differences(rows((2, 1, 5), (1, 1, 4)), rows((1, 1, 4), (2, 1, 5)))
    []
    >>> differences(rows((1, 1, 4), (2, 1, 6)), rows((1, 1, 4), (2, 1, 5)))
    ['1 of 2 rows differ; first: found (2, 1, 6), expected (2, 1, 5)']
    >>> differences(rows((1, 1, 4)), rows((1, 1, 4), (2, 1, 5)))
    ['1 rows found, 2 expected']
    """
    left, right = ordered(found), ordered(expected)
    if left.num_rows != right.num_rows:
        return [f"{left.num_rows} rows found, {right.num_rows} expected"]
    unequal = pa.array([False] * left.num_rows)
    for name in COLUMNS:
        unequal = pc.or_(unequal, pc.not_equal(left[name], right[name]))
    bad = pc.indices_nonzero(pc.fill_null(unequal, True))
    if len(bad) == 0:
        return []
    at = bad[0].as_py()
    one, other = (tuple(table.slice(at, 1).to_pylist()[0].values()) for table in (left, right))
    return [f"{len(bad)} of {left.num_rows} rows differ; first: found {one}, expected {other}"]
