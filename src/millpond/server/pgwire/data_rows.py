"""Rows as DataRow messages, or as lines of COPY, put together column by column."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.server.pgwire.binary_format import binary_column
from millpond.server.pgwire.column_bytes import big_endian, data_of, fixed, joined, lengths, with_length
from millpond.server.pgwire.messages import message
from millpond.sql.copy.copied_output import batches, copied_lines
from millpond.sql.copy.copy_statement import CopyStatement
from millpond.sql.copy.text_format import text_column
from millpond.sql.pg_catalog.pg_types import ColumnType, column_type

_PLAIN = pa.large_binary()


class RowEncoder:
    """Encodes the rows of one result."""

    def __init__(self, types: Sequence[str], formats: Sequence[int]) -> None:
        self.types = list(types)
        self.shown: list[ColumnType] = [column_type(t) for t in types]
        self.formats = list(formats)

    def messages(self, table: pa.Table) -> Iterator[bytes]:
        """The rows of a table as DataRow messages, some thousand at a time."""
        for batch in batches(table):
            yield self._messages(batch)

    def _messages(self, batch: pa.RecordBatch) -> bytes:
        parts, sizes = self._fields(batch)
        head = np.empty(batch.num_rows, [("kind", "S1"), ("size", ">i4"), ("columns", ">u2")])
        head["kind"], head["size"], head["columns"] = b"D", sizes + 6, len(self.types)
        return data_of(joined([fixed(head), *parts]))

    def copy_binary(self, table: pa.Table, first: bytes) -> Iterator[bytes]:
        """The rows as binary COPY has them, one in each CopyData message; `first` is before all rows."""
        for batch in batches(table.slice(0, 1)):
            parts, _ = self._fields(batch)
            yield message(b"d", first, struct.pack("!h", len(self.types)), data_of(joined(parts)))
        for batch in batches(table.slice(1)):
            parts, sizes = self._fields(batch)
            count = big_endian(np.full(batch.num_rows, len(self.types)), ">i2")
            yield data_of(joined([_copy_head(sizes + 2), count, *parts]))

    def _fields(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], np.ndarray]:
        parts: list[pa.Array] = []
        sizes = np.zeros(batch.num_rows, np.int64)
        for values, kind, shown, form in zip(
            batch.columns, self.types, self.shown, self.formats, strict=True
        ):
            size, data, taken = with_length((binary_column if form else text_column)(values, kind, shown))
            parts += [size, data]
            sizes += taken
        return parts, sizes

    def copy_lines(self, table: pa.Table, copy: CopyStatement) -> Iterator[bytes]:
        """The rows as lines of COPY in text or CSV, one in each CopyData message."""
        for ended in copied_lines(table, self.types, copy):
            data = pc.cast(ended, _PLAIN)
            yield data_of(joined([_copy_head(lengths(data)), data]))


def _copy_head(sizes: np.ndarray) -> pa.Array:
    head = np.empty(len(sizes), [("kind", "S1"), ("size", ">i4")])
    head["kind"], head["size"] = b"d", sizes + 4
    return fixed(head)
