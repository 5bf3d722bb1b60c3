"""Rows that DuckDB asks for: only the columns that a query needs are ever looked at.

DuckDB takes any Arrow dataset, and calls its `scanner` with the columns and the
filter of the query that runs; nothing of a table is read, or verified, before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from millpond.buffers import unsliced

Read = Callable[[Sequence[str]], pa.Table]  # columns -> all rows of them

BATCH_ROWS = 122_880  # DuckDB's threads take turns by batches


class LazyRows(ds.Dataset):  # type: ignore[misc]
    """Rows that are read when a query is run; what goes wrong then is kept for whoever asked."""

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
        try:
            rows = self._read([n for n in names if n in wanted or (filter is not None and _named(n, filter))])
        except BaseException as failure:
            self.failure = failure
            raise
        if filter is None:
            return _Batches(rows.select(wanted))
        held = ds.InMemoryDataset(_batches(rows), schema=rows.schema)
        return held.scanner(columns=wanted, filter=filter, batch_size=BATCH_ROWS)


class _Batches:
    """What DuckDB asks of a scanner, without a thread between."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    @property
    def projected_schema(self) -> pa.Schema:
        return self._rows.schema

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._rows.schema, _batches(self._rows))


def _batches(rows: pa.Table) -> list[pa.RecordBatch]:
    found = rows.to_batches(max_chunksize=BATCH_ROWS)
    return [pa.RecordBatch.from_arrays([unsliced(c) for c in b.columns], schema=rows.schema) for b in found]


def _named(column: str, condition: Any) -> bool:
    """May a condition be about a column? Its text tells, with signs of its own; too many do no harm."""
    plain = "".join(sign for sign in column if sign.isalnum() or sign == "_")
    return len(plain) < len(column) or plain in str(condition)
