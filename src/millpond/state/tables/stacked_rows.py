"""Reads the rows of several small tables with the same column types in one call.

Tables of one *stack shape* have columns of the same types in the same positions, and the same positions are
the key.  Their runs may share an Arrow batch, a stack (`state/runs/packed.py`); here columns are identified
by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, WEIGHT
from millpond.state.runs.merge import OpenFile
from millpond.state.runs.missing_column import Fill
from millpond.state.runs.point_lookup import RowSource
from millpond.state.runs.run_ref import RunRef
from millpond.state.runs.segment import SMALL_ROWS, Segment, stacked_name
from millpond.state.tables.table_spec import TableSpec

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

ROWS_MAX = SMALL_ROWS  # the maximum size of a run: in a larger one, a lookup reads only what it needs


def stack_shape(spec: TableSpec) -> tuple[Any, ...] | None:
    """What tables must have in common to share a stack; None for a table that cannot share one.

    >>> a = TableSpec("a", pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k",))
    >>> b = TableSpec("b", pa.schema([("x", pa.int64()), ("y", pa.int64())]), ("x",))
    >>> stack_shape(a) == stack_shape(b)
    True
    """
    if spec.rule != "latest" or spec.order or spec.time is not None or spec.defaults:
        return None
    if any(isinstance(field.type, pa.BaseExtensionType) for field in spec.schema):
        return None
    return tuple(spec.schema.types), tuple(spec.schema.get_field_index(name) for name in spec.key)


def by_position(spec: TableSpec) -> TableSpec:
    """The spec with columns identified by position."""
    names = {name: stacked_name(position) for position, name in enumerate(spec.schema.names)}
    fields = [field.with_name(names[field.name]) for field in spec.schema]
    return TableSpec(spec.name, pa.schema(fields), tuple(names[name] for name in spec.key))


class SegmentByPosition:
    """A segment of one table, with columns identified by position."""

    def __init__(self, segment: Segment, spec: TableSpec) -> None:
        self._segment = segment
        self._names = {stacked_name(position): name for position, name in enumerate(spec.schema.names)}
        self._names[WEIGHT] = WEIGHT

    def take(self, name: str, positions: Ints, fill: Fill | None = None) -> pa.Array:
        return self._segment.take(self._names[name], positions, fill)

    def slice(self, name: str, start: int, stop: int, fill: Fill | None = None) -> pa.Array:
        return self._segment.slice(self._names[name], start, stop, fill)

    def bits(self, name: str, rows: Ints, fill: Fill | None = None) -> npt.NDArray[Any] | None:
        return self._segment.bits(self._names[name], rows, fill)

    def all_differ(self, name: str) -> bool:
        return self._segment.all_differ(self._names[name])


@dataclass(frozen=True)
class RowBatch:
    """Rows of tables that share a batch and have the same newest epoch.

    Merges made together need not cover the same epochs, so rows of one stack may differ in age.
    """

    hi: int  # the newest epoch
    source: RowSource
    hashes: Hashes
    tables: list[tuple[int, int, int]]  # (number of the table, its first row, the row after its last)


def row_batches(
    specs: Sequence[TableSpec], runs: Sequence[Sequence[RunRef]], open_file: OpenFile
) -> list[RowBatch] | None:
    """The rows of all tables, newest first; None where a run is large, or two of its rows share a hash."""
    batches: dict[tuple[str, int, int], RowBatch] = {}
    for number, (spec, refs) in enumerate(zip(specs, runs, strict=True)):
        names = tuple(spec.schema.names)
        for ref in refs:
            if not ref.rows:
                continue
            file = open_file(ref.file)
            entry = file.entries[ref.segment]
            if ref.h_min > entry.h_min or ref.h_max < entry.h_max or entry.rows > ROWS_MAX:
                return None
            stack = file.stack(ref.segment)
            if stack is None or entry.names != names:  # the table had other columns when it was written
                segment = file.segment(ref.segment)
                if not segment.all_distinct():
                    return None
                tables = [(number, 0, segment.rows)]
                hashes = segment.hashes(0, segment.rows)
                own = RowBatch(ref.hi, SegmentByPosition(segment, spec), hashes, tables)
                batches[ref.file, -1 - ref.segment, ref.hi] = own
                continue
            batch = batches.get((ref.file, entry.offset, ref.hi))
            if batch is None:
                hashes = stack.verified()[HASH].to_numpy()
                batch = batches[ref.file, entry.offset, ref.hi] = RowBatch(ref.hi, stack, hashes, [])
            assert entry.first is not None
            batch.tables.append((number, entry.first, entry.first + entry.rows))
    return sorted(batches.values(), key=lambda batch: batch.hi, reverse=True)
