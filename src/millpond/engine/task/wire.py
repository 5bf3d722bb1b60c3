"""Compacts columns for the shuffle: narrow integers, times as offsets from the earliest, dictionaries.

A receiver gets the values and types that were sent; only fewer bytes pass
through Spark's shuffle.  The field's metadata stores the original type.
Dictionaries come only from sources (`passes.dictionary_columns`): a receiver
reads plain text.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from millpond import tuning
from millpond.engine.task.partitioning import plain

WIDE = b"millpond.wide"
_NARROW = (pa.int8(), pa.int16(), pa.int32())


def narrow(table: pa.Table) -> pa.Table:
    """
    >>> sent = narrow(pa.table({"n": pa.array([7] * 2000)}))
    >>> sent.schema.field("n").type, widen(sent).schema.field("n").type
    (DataType(int8), DataType(int64))
    """
    if table.num_rows < tuning.NARROW_ROWS_MIN:
        return plain(table, table.column_names)
    fields, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_dictionary(field.type):
            field, column = _worth_it(field, column)
            fields.append(field)
            columns.append(column)
            continue
        smaller = _since(column) if pa.types.is_timestamp(field.type) else _smaller(field.type, column)
        if smaller is None:
            fields.append(field)
            columns.append(column)
        else:
            mark, small = smaller
            note = {**(field.metadata or {}), WIDE: mark}
            fields.append(pa.field(field.name, small.type, field.nullable, note))
            columns.append(small)
    return pa.table(columns, schema=pa.schema(fields))


def widen(table: pa.Table) -> pa.Table:
    """Restore the argument of `narrow`."""
    if not any(field.metadata and WIDE in field.metadata for field in table.schema):
        return table
    fields, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        note = dict(field.metadata or {})
        mark = note.pop(WIDE, None)
        if mark is not None:
            kind, column = _as_it_was(mark, column)
            field = pa.field(field.name, kind, field.nullable, note or None)
        fields.append(field)
        columns.append(column)
    return pa.table(columns, schema=pa.schema(fields))


def _worth_it(field: pa.Field, column: pa.ChunkedArray) -> tuple[pa.Field, pa.ChunkedArray]:
    """Keep a dictionary if it has clearly fewer texts than the column has rows; else decode it."""
    texts, last = 0, None
    for chunk in column.chunks:
        values = chunk.dictionary
        if last is None or not _is_same(values, last):
            texts += len(values)
        last = values
    if tuning.DICTIONARY_ROWS_PER_TEXT * texts > len(column):
        return field.with_type(field.type.value_type), column.cast(field.type.value_type)
    return field.with_metadata({**(field.metadata or {}), WIDE: b"dictionary"}), column


def _is_same(a: pa.Array, b: pa.Array) -> bool:
    """Do both arrays share their memory?  Then a frame contains it once."""
    return len(a) == len(b) and [x and x.address for x in a.buffers()] == [
        x and x.address for x in b.buffers()
    ]


def _as_it_was(mark: bytes, column: pa.ChunkedArray) -> tuple[pa.DataType, pa.ChunkedArray]:
    if mark == b"dictionary":
        return column.type.value_type, column.cast(column.type.value_type)
    if mark == b"int64":
        return pa.int64(), column.cast(pa.int64())
    low, unit, zone = json.loads(mark)
    kind = pa.timestamp(unit, zone)
    return kind, pc.add(column.cast(pa.int64()), pa.scalar(low, pa.int64())).cast(kind)


def _smaller(kind: pa.DataType, column: pa.ChunkedArray) -> tuple[bytes, pa.ChunkedArray] | None:
    if kind == pa.int64():
        ends = pc.min_max(column)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is None:
            return b"int64", column.cast(pa.int8())
        for small in _NARROW:
            half = 1 << (small.bit_width - 1)
            if -half <= low and high < half:
                return b"int64", column.cast(small)
    elif pa.types.is_string(kind):
        sample = column.slice(0, tuning.NARROW_SAMPLE_ROWS)
        if 4 * pc.count_distinct(sample).as_py() < len(sample):
            return b"dictionary", column.dictionary_encode()
    return None


def _since(column: pa.ChunkedArray) -> tuple[bytes, pa.ChunkedArray] | None:
    """Encode times as offsets from the earliest, if these fit into 32 bits."""
    kind = column.type
    numbers = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
    ends = pc.min_max(numbers)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or high - low >= 1 << 31:
        return None
    mark = json.dumps([low, kind.unit, kind.tz]).encode()
    return mark, pc.subtract(numbers, pa.scalar(low, pa.int64())).cast(pa.int32())
