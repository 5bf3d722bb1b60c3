"""Rows that DuckDB reads on demand: only the columns that a query needs are loaded.

DuckDB accepts any Arrow dataset, and calls its `scanner` with the columns and the
filter of the running query; nothing of a table is read or verified before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from millpond.buffers import unsliced

Read = Callable[[Sequence[str]], Iterator[pa.Table]]  # columns -> all their rows, in several tables

BATCH_ROWS = 122_880  # DuckDB's threads divide the work by batches


class LazyRows(ds.Dataset):  # type: ignore[misc]
    """Rows that are read when a query runs; an error is stored in `failure` for the caller."""

    def __init__(self, schema: pa.Schema, read: Read) -> None:
        self._rows_schema = schema
        self._read = read
        self.failure: BaseException | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._rows_schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Any:
        names = self._rows_schema.names
        wanted = list(names if columns is None else columns)
        read = [n for n in names if n in wanted or (filter is not None and _named(n, filter))]
        if filter is None:
            return _Batches(self._schema_of(wanted), self._batches(read, wanted))
        return ds.Scanner.from_batches(
            self._batches(read, read),
            schema=self._schema_of(read),
            columns=wanted,
            filter=filter,
            batch_size=BATCH_ROWS,
        )

    def _schema_of(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self._rows_schema.field(name) for name in names])

    def _batches(self, read: Sequence[str], given: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = self._schema_of(given)
        try:
            for rows in self._read(read):
                for batch in rows.select(list(given)).to_batches(max_chunksize=BATCH_ROWS):
                    columns = [unsliced(c) for c in batch.columns]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch
        except Exception as failure:  # not when DuckDB stops reading early
            self.failure = failure
            raise


class _Batches:
    """The scanner interface that DuckDB uses, without an extra thread."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._schema = schema
        self._batches = batches

    @property
    def projected_schema(self) -> pa.Schema:
        return self._schema

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches)


def _named(column: str, condition: Any) -> bool:
    """Can a condition refer to a column?  Searches its text; reading a column too many does no harm."""
    plain = "".join(sign for sign in column if sign.isalnum() or sign == "_")
    return len(plain) < len(column) or plain in str(condition)
