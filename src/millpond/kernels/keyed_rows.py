"""Rows by the number of their key, for operators that fetch by key.

A batch and the rows fetched for it share one `KeySet`; a row's key is its
position there.  Rows of one key are adjacent, so they are a slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import WEIGHT, weights
from millpond.identity import one_chunk, take
from millpond.ordering import argsort_numbers
from millpond.state.tables.table import KeySet

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Keyed:
    """Rows with weights, grouped by key."""

    columns: Mapping[str, pa.Array]
    weights: Ints
    key: Ints  # number of the row's key, non-decreasing

    def __len__(self) -> int:
        return len(self.weights)

    @staticmethod
    def of(table: pa.Table, names: Sequence[str], key: Ints) -> Keyed:
        columns = {name: one_chunk(table.column(name)) for name in names}
        w = weights(table)
        if (key[1:] >= key[:-1]).all():
            return Keyed(columns, w, key)
        order = argsort_numbers(key)
        return Keyed({name: take(c, order) for name, c in columns.items()}, w[order], key[order])

    def some(self, rows: Ints, w: Ints | None = None) -> Keyed:
        """The selected rows, in that order, with their own or other weights."""
        columns = {name: take(column, rows) for name, column in self.columns.items()}
        return Keyed(columns, self.weights[rows] if w is None else w, self.key[rows])

    def of_keys(self, which: Ints) -> Keyed:
        """The rows of these keys (ascending), which are renumbered."""
        positions = np.searchsorted(which, self.key)
        inside = positions < len(which)
        inside[inside] = which[positions[inside]] == self.key[inside]
        if inside.all():
            return replace(self, key=positions)
        rows = np.flatnonzero(inside)
        return replace(self.some(rows), key=positions[rows])

    def weighted(self, w: Ints) -> Keyed:
        """The rows with other weights; rows of weight zero are removed."""
        rows = np.flatnonzero(w)
        return self.some(rows, w[rows])

    def table(self, names: Sequence[str]) -> pa.Table:
        return pa.table([*(self.columns[n] for n in names), pa.array(self.weights)], names=[*names, WEIGHT])


def some_keys(keys: KeySet, which: Ints, names: Sequence[str]) -> KeySet:
    """Some of the keys, under other column names."""
    columns = keys.columns
    if len(which) < len(keys):
        columns = columns.take(pa.array(which))
    if names:
        columns = columns.rename_columns(list(names))
    return KeySet(keys.hashes[which], columns, np.empty(0, np.int64))


def plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def as_declared(schema: pa.Schema, arrays: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Plain arrays as a table of the schema; extension types are restored."""
    typed = [
        pa.ExtensionArray.from_storage(field.type, one_chunk(array))
        if isinstance(field.type, pa.BaseExtensionType) and array.type != field.type
        else array
        for field, array in zip(schema, arrays, strict=True)
    ]
    return pa.table(typed, schema=schema)
