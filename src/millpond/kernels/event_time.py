"""Event time of rows as microseconds, and the rows that have none.

A time column is a timestamp of any unit and zone, or a date.  A row without a
time, or with one so distant that arithmetic on microseconds would overflow, cannot
be placed in time: it becomes an error row (law 9).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.buffers import fixed
from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.kernels.expression_kernel import error_rows

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FIRST_US = -62135596800_000_000  # the year 1
LAST_US = 253402300799_999_999  # the end of the year 9999
LIMIT_US = 2**61  # about 73,000 years before and after 1970

_TO_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DAY_US = 86_400_000_000


def check_time(schema: pa.Schema, column: str, step: str) -> pa.DataType:
    """The microsecond timestamp type in the column's zone; an InvalidError if it is not a time."""
    if column not in schema.names:
        raise InvalidError(
            f"there is no column {column!r}", detail=f"columns are {', '.join(schema.names)}", step=step
        )
    kind = schema.field(column).type
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_date(kind):
        return pa.timestamp("us")
    raise InvalidError(
        f"column {column!r} is not a time",
        detail=f"it is {kind}",
        hint="event time is a timestamp or a date; cast the column in a map before this step",
        step=step,
    )


def micros(column: pa.ChunkedArray) -> tuple[Ints, Bools]:
    """(microseconds since 1970, which rows have a usable time); values of other rows are undefined."""
    array = one_chunk(column)
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.unit in _TO_US and not array.null_count and len(array):
        raw, factor = fixed(array, np.int64), _TO_US[kind.unit]
        if int(raw.min()) >= -(LIMIT_US // factor) and int(raw.max()) <= LIMIT_US // factor:
            return raw if factor == 1 else raw * factor, np.ones(len(raw), np.bool_)
    valid: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_date(kind):
        array, factor = array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _DAY_US
    else:
        factor = _TO_US.get(kind.unit, 0)
        array = array.cast(pa.int64())
    values: Ints = array.fill_null(0).to_numpy(zero_copy_only=False)
    if not factor:
        return values // 1000, valid
    fits = np.abs(values) <= LIMIT_US // factor
    return np.where(fits, values, 0) * factor, valid & fits


def without_time(delta: pa.Table, usable: Bools, column: str) -> tuple[pa.Table, pa.Table | None]:
    """The rows with a time, and errors for the others."""
    if usable.all():
        return delta, None
    bad = delta.filter(pa.array(~usable))
    empty = one_chunk(bad.column(column)).is_null().to_pylist()
    reasons = [f"time column {column!r} is {'NULL' if null else 'out of range'}" for null in empty]
    return delta.filter(pa.array(usable)), error_rows(bad, reasons)


def beyond_calendar(column: str) -> str:
    """The reason of an error row whose window no calendar has."""
    return f"its window is not within the years 1 to 9999 (time column {column!r})"


def without_distant(
    delta: pa.Table, at: Ints, start: Ints, end: Ints, column: str
) -> tuple[pa.Table, Bools | None, pa.Table | None]:
    """The rows whose window is in the calendar, which those are if not all, and errors for the others."""
    if not len(at) or (start.min() >= FIRST_US and end.max() <= LAST_US):
        return delta, None, None
    in_calendar = (start >= FIRST_US) & (end <= LAST_US)
    bad = delta.filter(pa.array(~in_calendar))
    return (
        delta.filter(pa.array(in_calendar)),
        in_calendar,
        error_rows(bad, [beyond_calendar(column)] * bad.num_rows),
    )
