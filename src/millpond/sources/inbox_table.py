"""Reads the rows of a table from the inbox.

Changes apply in the order of the entry's number and the row's position in it; the column `__seq` carries both
to the operator of the table.
Rows may lack columns that were added to the table after they were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.operators.source_traits import ReadsInbox
from millpond.sources.source import Advance, Poll, Split
from millpond.state.inbox import parse
from millpond.state.runs.missing_column import CopiedColumn, CopyOf, Fill, filled
from millpond.state.tables.table_spec import TableSpec

SEQUENCE = "__seq"
ROWS_MAX = 1 << 24  # rows of one entry


@dataclass(frozen=True)
class InboxTable(ReadsInbox):
    columns: pa.Schema
    append_only: bool = False
    inbox: bool = True
    fill: tuple[tuple[str, Any], ...] = ()  # columns that an entry may lack, and the value to use

    @property
    def schema(self) -> pa.Schema:
        return self.columns.append(pa.field(SEQUENCE, pa.int64()))

    def table(self, step: str) -> TableSpec | None:
        return None

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        return Poll()  # the shell reads the inbox once, for all tables

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        return Advance(position)

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        assert split.data is not None
        entry = parse(int(split.what["entry"]), split.data)
        with pa.ipc.open_stream(pa.py_buffer(entry.payload)) as reader:
            rows = reader.read_all()
        rows = self.filled(rows)
        if self.append_only:
            rows = rows.drop_columns(["_w"])  # the shell takes no entry that deletes
        sequence = entry.number * ROWS_MAX + np.arange(rows.num_rows, dtype=np.int64)
        yield rows.append_column(SEQUENCE, pa.array(sequence))

    def filled(self, rows: pa.Table) -> pa.Table:
        """Add the columns that an entry lacks because they were added later."""
        if len(rows.column_names) == len(self.columns) + 1:
            return rows
        fill = dict(self.fill)
        arrays = [
            rows.column(f.name)
            if f.name in rows.column_names
            else filled(rows, f.name, self._fill_of(f, fill[f.name]))
            for f in self.columns
        ]
        return pa.table(arrays, schema=self.columns).append_column("_w", rows.column("_w"))

    def _fill_of(self, field: pa.Field, value: Any) -> Fill:
        if not isinstance(value, CopyOf):
            return pa.array([value], field.type)
        other = self.columns.field(value.column)
        return CopiedColumn(value.column, field.type, self._fill_of(other, value.otherwise))

    def takes(self, given: pa.Schema) -> bool:
        """Does an entry have the right columns, except for some that it may lack, and the weight?"""
        may_lack = {name for name, _ in self.fill}
        wanted = [f for f in self.columns if f.name in given.names or f.name not in may_lack]
        return bool(given == pa.schema([*wanted, pa.field("_w", pa.int64())]))
