"""Numbers of identity columns: assigned when an entry of the inbox is executed, in its order.

Law: no number is assigned twice, whichever process inserts.  The last number of a column is a row of its
sequence, a table that changes in the same epoch as the rows that got the numbers; so a replay assigns the
same numbers, and a rollback of the pond takes them back.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidError
from millpond.plan.objects import SqlColumn, SqlIdentity, SqlObject

NAME, LAST = "name", "last_value"  # columns of a sequence
_MOST = {"SMALLINT": 2**15 - 1, "INTEGER": 2**31 - 1, "BIGINT": 2**63 - 1}


def identity_columns(target: SqlObject) -> list[tuple[SqlColumn, SqlIdentity]]:
    return [(c, c.identity) for c in target.columns if c.identity is not None]


def refuse_given(target: SqlObject, rows: pa.Table) -> None:
    """Refuse rows that give a number for a column GENERATED ALWAYS."""
    for column, identity in identity_columns(target):
        if identity.always and rows.column(column.stored_name).null_count < rows.num_rows:
            raise InvalidError(
                f'cannot insert a non-DEFAULT value into column "{column.name}"',
                detail=f'column "{column.name}" is an identity column defined as GENERATED ALWAYS',
                hint="leave the column out, or write OVERRIDING SYSTEM VALUE before VALUES",
            )


def with_numbers(
    rows: pa.Table, column: SqlColumn, identity: SqlIdentity, last: int | None
) -> tuple[pa.Table, int | None]:
    """Number the rows that have NULL in an identity column; returns the last number that was assigned."""
    held = rows.column(column.stored_name)
    lacking = np.asarray(pc.is_null(held).to_numpy(zero_copy_only=False), dtype=bool)
    count = int(lacking.sum())
    if not count:
        return rows, last
    first = identity.start if last is None else last + identity.increment
    final = first + (count - 1) * identity.increment
    most = _MOST[column.type]
    if not -most - 1 <= final <= most:
        bound = "maximum" if identity.increment > 0 else "minimum"
        limit = most if identity.increment > 0 else -most - 1
        raise InvalidError(f'nextval: reached {bound} value of sequence "{identity.sequence}" ({limit})')
    numbers = np.zeros(rows.num_rows, np.int64)
    numbers[lacking] = first + np.arange(count, dtype=np.int64) * identity.increment
    made = pc.if_else(pa.array(lacking), pa.array(numbers), held.combine_chunks().cast(pa.int64()))
    at = rows.column_names.index(column.stored_name)
    return rows.set_column(at, rows.schema.field(at), made.cast(rows.schema.field(at).type)), final


def sequence_row(identity: SqlIdentity, last: int) -> pa.Table:
    """The row of a sequence after it has given a number."""
    return pa.table({NAME: [identity.sequence], LAST: pa.array([last], pa.int64())})
