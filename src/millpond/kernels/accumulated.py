"""Columns of accumulators: the aggregates of many groups, which can be stored, added and taken back.

Law: what `combined` and `running` return does not depend on the order in which groups are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import InternalError
from millpond.identity import one_chunk, take
from millpond.kernels.accumulators import Accumulator, Fields, Invertible, bounded, is_number

Ints = npt.NDArray[np.int64]
ROWS = "_n"


@dataclass(frozen=True)
class Accumulated:
    """The aggregates of some groups: the number of rows, and the fields of each accumulator.

    An accumulator without fields is not part of it, or is the number of rows itself.
    """

    kinds: tuple[Accumulator | None, ...]
    rows: Ints
    fields: tuple[Fields, ...]

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def of(table: pa.Table, kinds: Sequence[Accumulator | None]) -> Accumulated:
        """Read columns as `columns` names them; one that is missing is all zero, or NULL."""
        length, names = table.num_rows, set(table.column_names)
        rows = _ints(table.column(ROWS)) if ROWS in names else np.zeros(length, np.int64)
        found = []
        for number, kind in enumerate(kinds):
            fields: Fields = {}
            for name, as_type in {} if kind is None else kind.fields.items():
                column = f"_a{number}_{name}"
                if kind is not None and is_number(kind, name):
                    fields[name] = (
                        _ints(table.column(column)) if column in names else np.zeros(length, np.int64)
                    )
                else:
                    fields[name] = (
                        one_chunk(table.column(column)) if column in names else pa.nulls(length, as_type)
                    )
            found.append(fields)
        return Accumulated(tuple(kinds), rows, tuple(found))

    def columns(self) -> dict[str, Any]:
        named = {
            f"_a{number}_{name}": values
            for number, fields in enumerate(self.fields)
            for name, values in fields.items()
        }
        return {ROWS: self.rows, **named}

    def only(self, kinds: Sequence[Accumulator | None]) -> Accumulated:
        """Without the accumulators that are None there."""
        fields = tuple({} if kind is None else f for kind, f in zip(kinds, self.fields, strict=True))
        return Accumulated(tuple(kinds), self.rows, fields)

    def take(self, which: Ints) -> Accumulated:
        fields = tuple({name: _taken(v, which) for name, v in one.items()} for one in self.fields)
        return replace(self, rows=self.rows[which], fields=fields)

    def combined(self, starts: Ints) -> Accumulated:
        """The sums of groups that follow each other, given the first of each."""
        fields = tuple(
            {} if kind is None or not one else kind.combine(one, starts)
            for kind, one in zip(self.kinds, self.fields, strict=True)
        )
        rows = np.add.reduceat(self.rows, starts) if len(starts) else self.rows[:0]
        return replace(self, rows=rows, fields=fields)

    def bounded(self) -> Accumulated:
        """The groups as they are stored: see `accumulators.BoundsState`."""
        fields = tuple(
            one if kind is None or not one else bounded(kind, one)
            for kind, one in zip(self.kinds, self.fields, strict=True)
        )
        return replace(self, fields=fields)

    def negated(self) -> Accumulated:
        fields: list[Fields] = []
        for kind, one in zip(self.kinds, self.fields, strict=True):
            if one and not isinstance(kind, Invertible):
                raise InternalError("this accumulator cannot be taken back", detail=type(kind).__name__)
            fields.append(kind.negate(one) if one and isinstance(kind, Invertible) else {})
        return replace(self, rows=-self.rows, fields=tuple(fields))

    def running(self, starts: Ints) -> Accumulated:
        """Each group plus all groups before it that follow the same start."""
        length = len(self)
        positions = np.arange(length) - np.repeat(starts, np.diff(np.append(starts, length)))
        total, reach = self, 1
        while length and reach <= int(positions.max()):
            later = np.flatnonzero(positions >= reach)
            total = total._with(later, total.take(later)._plus(total.take(later - reach)))
            reach *= 2
        return total

    def _plus(self, other: Accumulated) -> Accumulated:
        fields = tuple(
            {} if kind is None or not a else kind.add(a, b)
            for kind, a, b in zip(self.kinds, self.fields, other.fields, strict=True)
        )
        return replace(self, rows=self.rows + other.rows, fields=fields)

    def _with(self, which: Ints, new: Accumulated) -> Accumulated:
        """With these groups replaced."""
        rows = self.rows.copy()
        rows[which] = new.rows
        fields = tuple(
            {name: _replaced(v, which, b[name]) for name, v in a.items()}
            for a, b in zip(self.fields, new.fields, strict=True)
        )
        return replace(self, rows=rows, fields=fields)


def joined(parts: Sequence[Accumulated]) -> Accumulated:
    """The groups of several parts, one after the other."""
    first = parts[0]
    fields = tuple(
        {name: _concatenated([part.fields[number][name] for part in parts]) for name in one}
        for number, one in enumerate(first.fields)
    )
    return replace(first, rows=np.concatenate([part.rows for part in parts]), fields=fields)


def stored_fields(kinds: Sequence[Accumulator | None]) -> list[pa.Field]:
    """The columns of `Accumulated.columns`."""
    named = [
        pa.field(f"_a{number}_{name}", as_type)
        for number, kind in enumerate(kinds)
        for name, as_type in ({} if kind is None else kind.fields).items()
    ]
    return [pa.field(ROWS, pa.int64()), *named]


def _ints(column: pa.ChunkedArray) -> Ints:
    array = one_chunk(column)
    values: Ints = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    return values


def _taken(values: Any, which: Ints) -> Any:
    return values[which] if isinstance(values, np.ndarray) else take(values, which)


def _concatenated(parts: Sequence[Any]) -> Any:
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)


def _replaced(values: Any, which: Ints, new: Any) -> Any:
    if isinstance(values, np.ndarray):
        out = values.copy()
        out[which] = new
        return out
    index = np.arange(len(values))
    index[which] = len(values) + np.arange(len(which))
    return take(pa.concat_arrays([values, new]), index)
