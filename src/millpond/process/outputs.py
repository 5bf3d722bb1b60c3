"""The outputs of user code: rows of each output, key by key, converted to columns in chunks.

A key that fails outputs nothing in the pass in which it failed: neither to the
output where a row did not fit, nor to any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.kernels.python_rows import arrow_values, row_values

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MAIN = ""
OUTPUT = "output"  # the column with the name of a row's output, in a step with side outputs
NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError)
CHUNK_ROWS = 8192  # rows of an output that are converted to columns together


def side_column(side: str, column: str) -> str:
    return f"{side or 'main'}.{column}"


@dataclass(frozen=True)
class OutputColumns:
    """The rows of one chunk, as columns."""

    columns: list[pa.Array]
    # In a step with one row per key: the keys whose row was set or retracted, and which of the two.
    keys: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    there: Bools = field(default_factory=lambda: np.empty(0, np.bool_))


@dataclass
class ProcessOutput:
    """One output during one pass."""

    schema: pa.Schema
    latest: bool = False  # each key has one row, the newest; None retracts it
    items: list[Any] = field(default_factory=list)  # of the current chunk, as user code returned them
    ends: list[int] = field(default_factory=list)  # where the items of each key end
    parts: list[OutputColumns] = field(default_factory=list)  # of earlier chunks

    def made(self, keys: Ints, skip: Collection[int]) -> OutputColumns:
        """The items as columns, without those of the keys to skip; raises if any does not fit."""
        items, sizes = self.items, np.diff(self.ends, prepend=0)
        if skip:
            is_kept = ~np.isin(keys, list(skip))
            items = [items[n] for n in np.flatnonzero(np.repeat(is_kept, sizes)).tolist()]
            keys, sizes = keys[is_kept], sizes[is_kept]
        if not self.latest:
            return OutputColumns(columns(items, self.schema))
        there = np.array([item is not None for item in items], np.bool_)
        arrays = columns([item for item in items if item is not None], self.schema)
        last = np.cumsum(sizes)[sizes > 0] - 1
        positions = (np.cumsum(there) - 1)[last][there[last]]
        return OutputColumns([a.take(pa.array(positions)) for a in arrays], keys[sizes > 0], there[last])

    def misfits(self, keys: Ints) -> set[int]:
        """The keys of items that do not fit."""
        owners = np.repeat(keys, np.diff(self.ends, prepend=0)).tolist()
        items = [(n, i) for n, i in zip(owners, self.items, strict=True) if not self.latest or i is not None]
        return {items[n][0] for n in misfits([item for _, item in items], self.schema)}


class Outputs(dict[str, ProcessOutput]):
    """All outputs of one pass, by name."""

    def __init__(self, schemas: Mapping[str, pa.Schema], latest: bool) -> None:
        super().__init__((side, ProcessOutput(schema, latest)) for side, schema in schemas.items())

    def find(self, side: str) -> ProcessOutput:
        try:
            return self[side]
        except KeyError:
            known = ", ".join(s for s in self if s) or "none"
            raise ValueError(f"no side output {side!r}; declared are {known}") from None

    def end_key(self) -> bool:
        """End the items of this key; returns whether the chunk is full and should be closed."""
        full = False
        for output in self.values():
            output.ends.append(len(output.items))
            full = full or len(output.items) >= CHUNK_ROWS
        return full

    def close(self, keys: Sequence[int], failed: Collection[int]) -> set[int]:
        """Convert the chunk of these keys to columns, without failed keys; returns the keys with misfits."""
        if not keys:
            return set()
        numbers = np.array(keys, np.int64)
        skip = set(failed)
        bad: set[int] = set()
        try:
            parts = [output.made(numbers, skip) for output in self.values()]
        except NOT_ARROW:
            bad = set().union(*(output.misfits(numbers) for output in self.values())) - skip
            parts = [output.made(numbers, skip | bad) for output in self.values()]
        for output, part in zip(self.values(), parts, strict=True):
            if output.items:
                output.parts.append(part)
            output.items.clear()
            output.ends.clear()
        return bad


def columns(items: Sequence[Any], schema: pa.Schema) -> list[pa.Array]:
    """Convert rows to columns; raises if any does not fit."""
    if not items:
        return [pa.nulls(0, f.type) for f in schema]
    names = tuple(schema.names)
    kinds, widths = set(map(type, items)), set()
    if kinds <= {dict, tuple}:
        widths = set(map(len, items))
    wheres: Iterable[Any] = range(len(names))
    if kinds == {dict} and widths == {len(names)}:
        wheres = names
    elif kinds != {tuple} or widths != {len(names)}:
        items = [row_values(item, names) for item in items]
    return [
        arrow_values(list(map(itemgetter(where), items)), f.type)
        for where, f in zip(wheres, schema, strict=True)
    ]


def check_fits(item: Any, schema: pa.Schema) -> None:
    """Raise the reason if a row does not fit."""
    for value, f in zip(row_values(item, tuple(schema.names)), schema, strict=True):
        try:
            arrow_values([value], f.type)
        except NOT_ARROW as error:
            raise TypeError(f"column {f.name!r} must be {f.type}: {error}") from error


def misfits(items: Sequence[Any], schema: pa.Schema) -> list[int]:
    """The numbers of the rows that do not fit."""
    wrong = []
    for number, item in enumerate(items):
        try:
            check_fits(item, schema)
        except NOT_ARROW:
            wrong.append(number)
    return wrong
