"""What a sink receives: a delivery with the changes of one epoch, or of several that were gathered.

Law 3: the rows of a delivery, their order and their numbers depend only on the changes.
A row is identified by (pond, epoch, number), however epochs are gathered, so targets can remove duplicates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from millpond import delta as deltas
from millpond.masking import masked
from millpond.plan.sink_settings import EPOCH, NUMBER, OPERATION, Guarantee, SinkMode
from millpond.sinks.row_changes import Upserts, appended, changelog, upserts

PART_ROWS = 250_000  # of a part of the full form, at most


def written_schema(schema: pa.Schema, mode: SinkMode) -> pa.Schema:
    """The columns that a sink writes for a view with these columns."""
    names = {"changes": [(deltas.WEIGHT, pa.int64())], "upsert": [(OPERATION, pa.string())]}
    names["changelog"] = [(OPERATION, pa.string()), (EPOCH, pa.int64()), (NUMBER, pa.int64())]
    return pa.schema([*schema, *(pa.field(n, kind) for n, kind in names.get(mode, []))])


@dataclass(frozen=True)
class SinkBinding:
    """A sink and the view whose changes it receives."""

    pond: str  # the id of the pond
    sink: str  # its name in the pond; the id and the name identify the sink at the target
    token: int  # of the coordinator: it has replaced all coordinators with a smaller one
    mode: SinkMode
    guarantee: Guarantee
    key: tuple[str, ...]  # of upserts and changelogs; empty in other modes, and if the view has none
    schema: pa.Schema  # the columns of the view

    @property
    def written_schema(self) -> pa.Schema:
        """The columns of `Delivery.rows`."""
        return written_schema(self.schema, self.mode)


@dataclass(frozen=True)
class EpochDelta:
    epoch: int
    delta: pa.Table  # consolidated: the view's columns and the weight `_w`


@dataclass(frozen=True)
class Part:
    """Some rows of a delivery of the full form."""

    binding: SinkBinding
    epoch: int  # of the delivery
    number: int  # of the part in the delivery
    first: int  # the place of its first row in the delivery
    rows: pa.Table = field(repr=False)


@dataclass(frozen=True)
class RefusedRow:
    """A row that a target refuses and would refuse again; it becomes an error row of the pond."""

    row: str  # as JSON
    reason: str

    def __post_init__(self) -> None:
        # A target may repeat what it was sent, with the secrets of the connection.
        object.__setattr__(self, "reason", masked(self.reason))


@dataclass(frozen=True)
class Delivery:
    """The changes after epoch `after`, up to and with `epoch`; (pond, sink, epoch) identifies it."""

    binding: SinkBinding
    epoch: int
    after: int
    parts: tuple[EpochDelta, ...] = field(repr=False)  # epochs without changes are left out
    all_rows: pa.Table | None = field(default=None, repr=False)  # of mode `complete`

    @property
    def id(self) -> str:
        """The identity of the delivery at targets that serve one sink.

        >>> binding = SinkBinding("f00d", "out", 1, "changes", "at_least_once", (), pa.schema([]))
        >>> Delivery(binding, 7, 6, ()).id
        'f00d:7'
        """
        return f"{self.binding.pond}:{self.epoch}"

    @cached_property
    def changes(self) -> pa.Table:
        """The net change of all epochs: the view's columns and the weight `_w`, consolidated."""
        if len(self.parts) == 1:
            return self.parts[0].delta
        if not self.parts:
            return self.binding.schema.append(pa.field(deltas.WEIGHT, pa.int64())).empty_table()
        return deltas.consolidate(deltas.concat([part.delta for part in self.parts]))

    @cached_property
    def rows(self) -> pa.Table:
        """The rows in the shape of the mode: the columns of `binding.written_schema`."""
        match self.binding.mode:
            case "changes":
                return self.changes
            case "append":
                return pa.concat_tables([appended(part.delta) for part in self.parts] or [self._no_rows()])
            case "upsert":
                return self.upserts.together()
            case "changelog":
                rows = [changelog(part.delta, part.epoch, self.binding.key) for part in self.parts]
                return pa.concat_tables(rows or [self._no_rows()])
            case "complete":
                return self._no_rows() if self.all_rows is None else self.all_rows

    @cached_property
    def upserts(self) -> Upserts:
        """Of mode `upsert`: the rows to put and the rows to delete; no key is in both."""
        return upserts(self.changes, self.binding.key)

    def identities(self) -> Iterator[str]:
        """The identity of each row of `rows`: pond, epoch and number, the same in every delivery of it.

        >>> delta = pa.table({"k": ["a", "b"], "_w": [1, 2]})
        >>> binding = SinkBinding("f00d", "out", 1, "append", "at_least_once", (), delta.schema)
        >>> list(Delivery(binding, 7, 6, (EpochDelta(7, delta),)).identities())
        ['f00d:7:0', 'f00d:7:1', 'f00d:7:2']
        """
        pond = self.binding.pond
        if self.binding.mode == "changelog":
            pairs = zip(self.rows[EPOCH].to_pylist(), self.rows[NUMBER].to_pylist(), strict=True)
            yield from (f"{pond}:{epoch}:{number}" for epoch, number in pairs)
        elif self.binding.mode == "append":
            for part in self.parts:
                yield from (f"{pond}:{part.epoch}:{n}" for n in range(int(deltas.weights(part.delta).sum())))
        else:
            yield from (f"{pond}:{self.epoch}:{n}" for n in range(self.rows.num_rows))

    def cut(self, rows_max: int = PART_ROWS) -> list[Part]:
        """The rows in parts, for sinks of the full form."""
        found = []
        for number, first in enumerate(range(0, self.rows.num_rows, rows_max)):
            rows = self.rows.slice(first, rows_max)
            found.append(Part(self.binding, self.epoch, number, first, rows))
        return found

    def refused(self, row: int, reason: str) -> RefusedRow:
        """A row of `rows` that the target refuses."""
        return RefusedRow(row_text(self.rows.slice(row, 1).to_pylist()[0]), reason)

    def _no_rows(self) -> pa.Table:
        return self.binding.written_schema.empty_table()


def row_text(row: Any) -> str:
    """A row as JSON, for error rows.

    >>> row_text({"k": 1, "at": None})
    '{"k": 1, "at": null}'
    """
    return json.dumps(row, default=str, ensure_ascii=False)
