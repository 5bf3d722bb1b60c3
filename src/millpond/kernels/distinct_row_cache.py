"""Expressions over repeating rows, computed once for each distinct row.

Law: the result for a row depends on that row alone (see `kernel`), so equal rows have
equal results, and any of them can be evaluated.  This does not hold for a function
that returns another value at every call: such expressions are not `steady`, and
every row is computed.

It pays off where a value is expensive and there are few distinct rows: functions that
read or return texts, over columns whose values repeat.  For a time, the quantity that
is read may repeat even if the time does not: its day, its minute (`time_granularity`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import tuning
from millpond.identity import one_chunk, take
from millpond.kernels.expressions import Expression
from millpond.kernels.packed_rows import pack
from millpond.kernels.time_granularity import grains
from millpond.ordering import stable_argsort

Ints = npt.NDArray[np.int64]


def by_columns(expressions: Sequence[Expression]) -> dict[tuple[str, ...], list[int]]:
    """The indexes of expressions for which caching may pay off, by the columns they need."""
    found: dict[tuple[str, ...], list[int]] = {}
    for index, one in enumerate(expressions):
        if one.steady and one.needs and one.plain is None:
            found.setdefault(one.needs, []).append(index)
    return found


def is_dear(rows: pa.Table, expressions: Sequence[Expression]) -> bool:
    """Whether one of these expressions reads or returns texts."""
    texts = any(_is_text(e.type) for e in expressions)
    return texts or any(_is_text(rows.schema.field(name).type) for e in expressions for name in e.needs)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def computed(
    rows: pa.Table, expressions: Sequence[Expression], run: Callable[[pa.Table], pa.Table]
) -> list[pa.Array] | None:
    """The result of `run` for all rows, computed for the distinct ones; None if that does not pay off."""
    if rows.num_rows < tuning.DISTINCT_ROWS_MIN or not is_dear(rows, expressions):
        return None
    grain_us = min(e.grain_us for e in expressions)
    if grain_us and rows.num_columns == 1:
        by_grain = _by_grain(rows, grain_us, run)
        if by_grain is not None:
            return by_grain
    packed = pack(rows.columns)
    if packed is None:
        return None
    codes = packed.codes.view(np.int64)
    distinct, inverse = _distinct(codes)
    if tuning.DISTINCT_ROWS_PER_VALUE * len(distinct) > len(codes):
        return None
    columns = [one_chunk(column) for column in packed.columns(distinct.view(np.uint64))]
    results = run(pa.table(columns, schema=rows.schema))
    return [take(one_chunk(column), inverse) for column in results.columns]


def _by_grain(rows: pa.Table, grain_us: int, run: Callable[[pa.Table], pa.Table]) -> list[pa.Array] | None:
    """Like `computed`, for expressions that read a time only to a granularity of `grain_us` microseconds."""
    found = grains(rows.column(0), grain_us)
    if found is None or tuning.DISTINCT_ROWS_PER_VALUE * len(found.begins) > rows.num_rows:
        return None
    results = [one_chunk(column) for column in run(pa.table([found.begins], schema=rows.schema)).columns]
    if found.number is None:
        return [pa.repeat(column[0], rows.num_rows) for column in results]
    return [take(column, found.number) for column in results]


def _distinct(codes: Ints) -> tuple[Ints, Ints]:
    """(the distinct codes, ascending; the index of each row's code among them)."""
    size = int(codes.max()) + 1 if codes.min() >= 0 else 0
    if 0 < size <= tuning.DISTINCT_SLOTS_PER_ROW * len(codes):
        there = np.zeros(size, np.bool_)
        there[codes] = True
        distinct = np.flatnonzero(there)
        positions = np.empty(size, np.int64)
        positions[distinct] = np.arange(len(distinct))
        return distinct, positions[codes]
    order = stable_argsort(codes.view(np.uint64))
    ordered = codes[order]
    begins = np.append(True, ordered[1:] != ordered[:-1])
    inverse = np.empty(len(codes), np.int64)
    inverse[order] = np.cumsum(begins) - 1
    return ordered[begins], inverse
