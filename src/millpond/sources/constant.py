"""Constant rows, such as VALUES in a query: they are read once, in the first epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millpond.operators.source_traits import ConstantRows, KeepsHistory, RestoresSplits
from millpond.sources.source import Advance, Poll, Split
from millpond.state.tables.table_spec import TableSpec


class _Once(ConstantRows, KeepsHistory, RestoresSplits):
    """One split that never changes."""

    append_only: ClassVar[bool] = True

    def all_rows(self) -> pa.Table:
        raise NotImplementedError

    @property
    def schema(self) -> pa.Schema:
        return self.all_rows().schema

    def table(self, step: str) -> TableSpec | None:
        return None

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        return Poll() if position else Poll((self.again({}),))

    def again(self, what: Mapping[str, Any]) -> Split:
        rows = self.all_rows()
        return Split({}, rows.num_rows, rows.nbytes)

    def history(self, position: Any, seen: pa.Table | None, rows: int) -> Iterator[Split]:
        if position:
            yield self.again({})

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        return Advance(1)

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        rows = self.all_rows()
        yield rows.select([c for c in rows.column_names if c in columns])


@dataclass(frozen=True)
class ConstantSource(_Once):
    columns: pa.Schema
    rows: bytes  # an Arrow stream

    @staticmethod
    def of(table: pa.Table) -> ConstantSource:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        return ConstantSource(table.schema, sink.getvalue().to_pybytes())

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    def all_rows(self) -> pa.Table:
        with pa.ipc.open_stream(self.rows) as stream:
            return stream.read_all()


@dataclass(frozen=True)
class OneRow(_Once):
    """One row without meaning: the input of an aggregate without a key before any rows come."""

    def all_rows(self) -> pa.Table:
        return pa.table({"nothing": pa.array([True])})
