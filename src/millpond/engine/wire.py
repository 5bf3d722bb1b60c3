"""Columns on the wire: integers no wider than their values, repeated strings once.

What a receiver sees is what was sent, type for type; only fewer bytes pass
through Spark's shuffle.  The type to come back to stands in the field's
metadata.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

WIDE = b"millpond.wide"
ROWS_MIN = 1000  # below this the bytes do not matter
SAMPLE = 1000
_NARROW = (pa.int8(), pa.int16(), pa.int32())


def narrow(table: pa.Table) -> pa.Table:
    """
    >>> sent = narrow(pa.table({"n": pa.array([7] * 2000)}))
    >>> sent.schema.field("n").type, widen(sent).schema.field("n").type
    (DataType(int8), DataType(int64))
    """
    if table.num_rows < ROWS_MIN:
        return table
    fields, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        small = _smaller(field.type, column)
        if small is None:
            fields.append(field)
            columns.append(column)
        else:
            note = {
                **(field.metadata or {}),
                WIDE: b"dictionary" if pa.types.is_dictionary(small.type) else b"int64",
            }
            fields.append(pa.field(field.name, small.type, field.nullable, note))
            columns.append(small)
    return pa.table(columns, schema=pa.schema(fields))


def widen(table: pa.Table) -> pa.Table:
    """What `narrow` was given."""
    if not any(field.metadata and WIDE in field.metadata for field in table.schema):
        return table
    fields, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        note = dict(field.metadata or {})
        mark = note.pop(WIDE, None)
        if mark is not None:
            kind = pa.int64() if mark == b"int64" else field.type.value_type
            column, field = column.cast(kind), pa.field(field.name, kind, field.nullable, note or None)
        fields.append(field)
        columns.append(column)
    return pa.table(columns, schema=pa.schema(fields))


def _smaller(kind: pa.DataType, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    if kind == pa.int64():
        ends = pc.min_max(column)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is None:
            return column.cast(pa.int8())
        for small in _NARROW:
            half = 1 << (small.bit_width - 1)
            if -half <= low and high < half:
                return column.cast(small)
    elif pa.types.is_string(kind):
        sample = column.slice(0, SAMPLE)
        if 4 * pc.count_distinct(sample).as_py() < len(sample):
            return column.dictionary_encode()
    return None
