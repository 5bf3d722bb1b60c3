"""The values of a column in rows that were written before the column was declared.

Law: they depend on the row alone, not on whether its run was merged.  They are one value for all rows, or
those of another column of the same row, cast to a wider type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InternalError
from millpond.identity import repeat


@dataclass(frozen=True)
class CopyOf:
    """Declares that older rows have the value of another column, cast to the type of the new one."""

    column: str
    otherwise: Any = None  # the value of a row that lacks the other column, too


@dataclass(frozen=True)
class CopiedColumn:
    """How to make a missing column of another one."""

    column: str
    type: pa.DataType
    fill: Fill | None  # if the other column is missing, too

    def of(self, values: Any) -> Any:
        """Cast an array of the other column.

        >>> CopiedColumn("a", pa.int64(), None).of(pa.array([1, None], pa.int16())).type
        DataType(int64)
        """
        return pc.cast(values, self.type)


Fill: TypeAlias = pa.Array | CopiedColumn  # an array has the one value of all rows


def filled(rows: pa.Table, name: str, fill: Fill) -> pa.ChunkedArray | pa.Array:
    """The values of a column that rows lack.

    >>> filled(pa.table({"a": [1, 2]}), "b", CopiedColumn("a", pa.float64(), None)).to_pylist()
    [1.0, 2.0]
    """
    if isinstance(fill, pa.Array):
        return repeat(fill, rows.num_rows)
    if fill.column in rows.column_names:
        return fill.of(rows.column(fill.column))
    if fill.fill is None:
        raise InternalError(f"column {name!r} is a copy of {fill.column!r}, which rows lack")
    return fill.of(filled(rows, fill.column, fill.fill))
