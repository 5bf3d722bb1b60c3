"""What user code gives: rows of each output, key after key, made into columns by stretches.

A key for which something failed gives nothing in the pass in which it failed:
neither in the output where a row did not fit, nor in any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.operators.flat_map import arrow_values, row_values

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MAIN = ""
OUTPUT = "output"  # the column that tells to which output a row belongs, in a step with side outputs
NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError)
STRETCH = 8192  # rows of an output that are made into columns at once


def side_column(side: str, column: str) -> str:
    return f"{side or 'main'}.{column}"


@dataclass(frozen=True)
class Part:
    """Rows of one stretch, as columns."""

    columns: list[pa.Array]
    # Where a key has one row: of which keys it was given or taken back, and which.
    keys: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    there: Bools = field(default_factory=lambda: np.empty(0, np.bool_))


@dataclass
class Output:
    """One output in one pass."""

    schema: pa.Schema
    latest: bool = False  # the newest row of a key is its only one; None takes it back
    items: list[Any] = field(default_factory=list)  # of the stretch at hand, as user code gave them
    ends: list[int] = field(default_factory=list)  # of its keys among the items
    parts: list[Part] = field(default_factory=list)  # of the stretches before

    def made(self, keys: Ints, skip: Collection[int]) -> Part:
        """The items as columns, without those of the keys to skip; raises when any does not fit."""
        items, sizes = self.items, np.diff(self.ends, prepend=0)
        if skip:
            kept = ~np.isin(keys, list(skip))
            items = [items[n] for n in np.flatnonzero(np.repeat(kept, sizes)).tolist()]
            keys, sizes = keys[kept], sizes[kept]
        if not self.latest:
            return Part(columns(items, self.schema))
        there = np.array([item is not None for item in items], np.bool_)
        arrays = columns([item for item in items if item is not None], self.schema)
        last = np.cumsum(sizes)[sizes > 0] - 1
        place = (np.cumsum(there) - 1)[last][there[last]]
        return Part([a.take(pa.array(place)) for a in arrays], keys[sizes > 0], there[last])

    def misfits(self, keys: Ints) -> set[int]:
        """The keys of items that do not fit."""
        owners = np.repeat(keys, np.diff(self.ends, prepend=0)).tolist()
        given = [(n, i) for n, i in zip(owners, self.items, strict=True) if not self.latest or i is not None]
        return {given[n][0] for n in misfits([item for _, item in given], self.schema)}


class Outputs(dict[str, Output]):
    """All outputs of one pass, by name."""

    def __init__(self, schemas: Mapping[str, pa.Schema], latest: bool) -> None:
        super().__init__((side, Output(schema, latest)) for side, schema in schemas.items())

    def find(self, side: str) -> Output:
        try:
            return self[side]
        except KeyError:
            known = ", ".join(s for s in self if s) or "none"
            raise ValueError(f"no side output {side!r}; declared are {known}") from None

    def end_key(self) -> bool:
        """No more items of this key; is it time to close the stretch?"""
        full = False
        for output in self.values():
            output.ends.append(len(output.items))
            full = full or len(output.items) >= STRETCH
        return full

    def close(self, keys: Sequence[int], failed: Collection[int]) -> set[int]:
        """The stretch of these keys becomes columns, but for those that failed; those with misfits."""
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
    """The rows as columns; raises when any does not fit."""
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
    """Raise what is wrong with one row."""
    for value, f in zip(row_values(item, tuple(schema.names)), schema, strict=True):
        try:
            arrow_values([value], f.type)
        except NOT_ARROW as error:
            raise TypeError(f"column {f.name!r} must be {f.type}: {error}") from error


def misfits(items: Sequence[Any], schema: pa.Schema) -> list[int]:
    """The numbers of the rows that do not fit."""
    found = []
    for number, item in enumerate(items):
        try:
            check_fits(item, schema)
        except NOT_ARROW:
            found.append(number)
    return found
