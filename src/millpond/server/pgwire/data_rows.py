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
from millpond.server.pgwire.text_format import around, text_column
from millpond.sql.pg_catalog.pg_types import ColumnType, column_type

BATCH_ROWS = 8192
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

    def copy_text(self, table: pa.Table, delimiter: str, null: str) -> Iterator[bytes]:
        """The rows as lines of COPY's text format."""
        for batch in batches(table):
            parts: list[pa.Array] = []
            for values, kind, shown in zip(batch.columns, self.types, self.shown, strict=True):
                text = pc.cast(text_column(values, kind, shown), pa.large_string())
                parts.append(_escaped(text, delimiter, null))
            yield _copy_lines(parts, delimiter, batch.num_rows)

    def copy_csv(self, table: pa.Table, delimiter: str, null: str, quote: str) -> Iterator[bytes]:
        """The rows as lines of CSV; a value is quoted where that is needed."""
        special = "[" + "".join("\\" + sign for sign in (delimiter, quote)) + "\\n\\r]"
        for batch in batches(table):
            parts: list[pa.Array] = []
            for values, kind, shown in zip(batch.columns, self.types, self.shown, strict=True):
                text = pc.cast(text_column(values, kind, shown), pa.large_string())
                needs = pc.or_(pc.match_substring_regex(text, special), pc.equal(text, null))
                inside = pc.replace_substring(text, quote, quote * 2)
                quoted = around(quote, inside, quote)
                parts.append(pc.fill_null(pc.if_else(needs, quoted, text), null))
            yield _copy_lines(parts, delimiter, batch.num_rows)


def _escaped(text: pa.Array, delimiter: str, null: str) -> pa.Array:
    if pc.any(pc.match_substring_regex(text, "[\\\\\\n\\r\\t\\" + delimiter + "]")).as_py():
        text = pc.replace_substring(text, "\\", "\\\\")
        for sign, shown in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
            text = pc.replace_substring(text, sign, shown)
        if delimiter not in "\t\n\r\\":
            text = pc.replace_substring(text, delimiter, "\\" + delimiter)
    return pc.fill_null(text, null)


def _copy_head(sizes: np.ndarray) -> pa.Array:
    head = np.empty(len(sizes), [("kind", "S1"), ("size", ">i4")])
    head["kind"], head["size"] = b"d", sizes + 4
    return fixed(head)


def _copy_lines(parts: list[pa.Array], delimiter: str, rows: int) -> bytes:
    """Lines as CopyData messages."""
    if not parts:
        return message(b"d", b"\n") * rows
    wide = [pc.cast(part, pa.large_string()) for part in parts]
    line = wide[0]
    if len(wide) > 1:
        line = pc.binary_join_element_wise(*wide, pa.scalar(delimiter, pa.large_string()))
    ended = pc.cast(around("", line, "\n"), _PLAIN)
    return data_of(joined([_copy_head(lengths(ended)), ended]))


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        if batch.num_rows:
            yield batch
