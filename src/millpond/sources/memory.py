"""The in-memory source for tests: rows, pauses, crashes and event time.

Items are rows (a table or dicts, with `_w` for retractions), `Pause` (the source is empty for some polls),
`Crash` (the run ends with an exception at this item, once), and `EventTimeBound` (event time advances
without a
row); otherwise watermarks follow the times of the rows.
The position is the number of items read, so a reopened pond continues at the same item if it gets the same
items again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millpond.arguments.call_errors import checked
from millpond.arguments.schemas import schema_of
from millpond.errors import InvalidError, nearest
from millpond.integer_casts import require_integers
from millpond.operators.source_traits import KeepsHistory, RestoresSplits
from millpond.plan.backfill import FROM_NOW
from millpond.sources.source import BOUND, Advance, Poll, Split
from millpond.state.tables.table_spec import TableSpec
from millpond.valid_text import require_texts


@dataclass(frozen=True)
class Pause:
    """The source is empty for this many polls."""

    polls: int = 1


class InjectedCrash(RuntimeError):
    """A simulated crash; the test opens the pond again and continues."""


@dataclass(frozen=True)
class Crash:
    """Raise InjectedCrash once, in the run that reaches this item."""

    reason: str = "a crash in the test input"


@dataclass(frozen=True)
class EventTimeBound:
    """No more rows before this time will come: the watermarks of the stream rise to it."""

    at_us: int


@checked
@dataclass(frozen=True)
class MemorySource(KeepsHistory, RestoresSplits):
    """
    >>> source = MemorySource({"k": int})  # or an Arrow schema, or a dataclass
    >>> source.push([{"k": 1}], [{"k": 2}])
    >>> [s.rows for s in source.poll(None, None, 100).splits]
    [1, 1]
    """

    schema: pa.Schema
    append_only: bool = True
    partition: str = ""
    items: list[Any] = field(default_factory=list, compare=False, repr=False, metadata={"durable": False})
    _partitions: dict[int, str] = field(
        default_factory=dict, compare=False, repr=False, metadata={"durable": False}
    )  # of items that are not in `partition`
    _met: dict[int, int] = field(default_factory=dict, compare=False, repr=False, metadata={"durable": False})

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", schema_of(self.schema))

    def push(self, *items: Any, partition: str | None = None) -> None:
        """Add items at the end: tables, lists of dicts, Pause, Crash or EventTimeBound.

        Each partition has its own watermark, as those of a Kafka topic have.

        >>> source = MemorySource({"k": int})
        >>> source.push([{"k": 1}], partition="north")
        >>> source.push([{"k": 2}], partition="south")
        >>> [s.partition for s in source.poll(None, None, 100).splits]
        ['north', 'south']
        """
        found = [
            item if isinstance(item, Pause | Crash | EventTimeBound) else self._rows(item) for item in items
        ]
        if partition is not None:
            first = len(self.items)
            self._partitions.update(dict.fromkeys(range(first, first + len(found)), partition))
        self.items.extend(found)

    def _rows(self, item: Any) -> pa.Table:
        """Convert rows to the declared columns, or raise an error that says what differs."""
        columns = ", ".join(f"{f.name} {f.type}" for f in self.schema)
        hint = f"push lists of dicts, or Arrow tables, with the columns {columns}"
        if isinstance(item, Mapping):
            item = [item]  # one row
        elif not isinstance(item, pa.Table) and hasattr(item, "__arrow_c_stream__"):
            item = pa.table(item)
        if not isinstance(item, pa.Table):
            if isinstance(item, str | bytes) or not isinstance(item, Iterable):
                raise InvalidError("the value is not a list of rows", detail=f"got {item!r}"[:200], hint=hint)
            item = list(item)
            if odd := [row for row in item if not isinstance(row, Mapping)]:
                raise InvalidError(
                    "a row is a dict of its columns", detail=f"got {odd[0]!r}"[:200], hint=hint
                )
            require_texts(item, "a text in the rows")
        given = [item.column_names] if isinstance(item, pa.Table) else item
        known = {*self.schema.names, *(() if self.append_only else ("_w",))}
        for names in given:
            if more := [n for n in names if n not in known]:
                why = nearest(more[0], self.schema.names, hint)
                if more[0] == "_w":
                    why = "MemorySource(..., append_only=False) allows retractions"
                raise InvalidError(
                    f"the source has no column {more[0]!r}", detail=f"its columns are {columns}", hint=why
                )
            if lacking := [n for n in self.schema.names if n not in names]:
                raise InvalidError(
                    f"a row lacks column {lacking[0]!r}",
                    detail=f"its columns are {', '.join(map(str, names)) or 'none'}",
                    hint=f"give every column, None where there is no value: {columns}",
                )
        try:
            if not isinstance(item, pa.Table):
                require_integers(item, self.schema)
                return rows(self.schema, item)
            wanted = [*self.schema.names, *(["_w"] if "_w" in item.column_names else [])]
            full = pa.schema(
                [*self.schema, *([pa.field("_w", pa.int64())] if len(wanted) > len(self.schema) else [])]
            )
            return item.select(wanted).cast(full)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidError("the rows do not fit the source", detail=str(error), hint=hint) from error

    def table(self, step: str) -> TableSpec | None:
        return None

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        start = int(position or 0)
        if start > len(self.items):
            raise InvalidError(
                "the source's position is beyond its end",
                detail=f"{start} items were taken, it has {len(self.items)}",
                hint="give the test source the same items as before",
            )
        splits: list[Split] = []
        taken = 0
        marks = 0  # pauses and crashes since the last rows: they belong to the next split
        for number in range(start, len(self.items)):
            item = self.items[number]
            if isinstance(item, Crash):
                if not splits and self._met.get(number, 0) == 0:
                    self._met[number] = 1
                    raise InjectedCrash(item.reason)
                if splits:
                    break
                marks += 1
                continue
            if isinstance(item, Pause):
                if splits:
                    break
                met = self._met.get(number, 0)
                if met < item.polls:
                    self._met[number] = met + 1
                    return Poll()
                marks += 1
                continue
            splits.append(self._split(number, marks, item))
            marks = 0
            taken += splits[-1].rows
            if taken >= max_rows:
                break
        return Poll(tuple(splits), backlog_rows=0)

    def _split(self, number: int, marks: int, item: pa.Table | EventTimeBound) -> Split:
        partition = self._partitions.get(number, self.partition)
        if isinstance(item, EventTimeBound):
            return Split({"item": number, "marks": marks, "bound": item.at_us}, 0, 0, partition)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, item.schema) as writer:
            writer.write_table(item)
        raw = sink.getvalue().to_pybytes()
        return Split({"item": number, "marks": marks}, item.num_rows, len(raw), partition, raw)

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        return Advance(int(position or 0) + sum(1 + int(s.what["marks"]) for s in admitted))

    def again(self, what: Mapping[str, Any]) -> Split:
        """The split that was admitted, for a replay; only this process has its rows."""
        number = int(what["item"])
        if number >= len(self.items) or not isinstance(self.items[number], pa.Table | EventTimeBound):
            raise InvalidError(
                f"the MemorySource does not hold item {number}",
                detail=f"it has {len(self.items)} items in this process, its rows are stored nowhere else",
                hint="replay in the process that pushed the rows, or define the stream and push them again; "
                "rows of a table, a FileSource or a KafkaSource can be read again by any process",
            )
        return self._split(number, int(what["marks"]), self.items[number])

    def history(self, position: Any, seen: pa.Table | None, rows: int) -> Iterator[Split]:
        """Splits of all items up to a position; only this process has them."""
        taken = int(position or 0)
        if taken > len(self.items):
            raise InvalidError(
                "the MemorySource no longer has the items that were taken",
                detail=f"{taken} items were taken, it has {len(self.items)}",
                hint=f"push the same items as before, or {FROM_NOW}",
            )
        for number, item in enumerate(self.items[:taken]):
            if isinstance(item, pa.Table | EventTimeBound):
                yield self._split(number, 0, item)

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        if "bound" in split.what:
            yield pa.table({BOUND: pa.array([split.what["bound"]], pa.int64())})
            return
        assert split.data is not None
        with pa.ipc.open_stream(pa.py_buffer(split.data)) as reader:
            table = reader.read_all()
        keep = [*columns, "_w"] if "_w" in table.column_names else list(columns)
        yield table.select(keep)


def rows(schema: pa.Schema, dicts: list[dict[str, Any]]) -> pa.Table:
    """Dicts as a delta, with `_w` if any dict has it."""
    if any("_w" in d for d in dicts):
        full = pa.schema([*schema, pa.field("_w", pa.int64())])
        return pa.Table.from_pylist([{"_w": 1, **d} for d in dicts], schema=full)
    return pa.Table.from_pylist(dicts, schema=schema)
