"""State in columns: one value per key of a batch, as Arrow arrays.

`process_batch` works on these; no value is converted to a Python object.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.delta import HASH, WEIGHT
from millpond.identity import equal_rows, one_chunk
from millpond.operators.operator import Change
from millpond.process.spec import StateSpec
from millpond.state.tables.table import KeySet, Table

Bools = npt.NDArray[np.bool_]


class ColumnHandle:
    """`values` reads and sets an array with a value per key, or a table for a record; NULL means no value."""

    __slots__ = ("_found", "_keys", "_new", "_old", "_spec", "_table")

    def __init__(self, spec: StateSpec, table: Table, keys: KeySet) -> None:
        self._spec = spec
        self._table = table
        self._keys = keys
        self._found, rows = table.lookup_one(keys)
        absent = pa.array(~self._found)
        self._old = [
            one_chunk(rows.column(f.name))
            if self._found.all()
            else _emptied(one_chunk(rows.column(f.name)), absent)
            for f in spec.fields
        ]
        self._new: list[pa.Array] | None = None

    @property
    def found(self) -> Bools:
        """Which keys have a value."""
        return self._found.copy()

    @property
    def values(self) -> Any:
        arrays = (
            self._new if self._new is not None else [self._or_default(n, a) for n, a in enumerate(self._old)]
        )
        if self._spec.form == "scalar":
            return arrays[0]
        return pa.table(arrays, schema=self._spec.fields)

    @values.setter
    def values(self, returned: Any) -> None:
        fields = self._spec.fields
        parts = [returned] if self._spec.form == "scalar" else [returned.column(f.name) for f in fields]
        self._new = [self._fitted(part, f) for part, f in zip(parts, fields, strict=True)]

    def _fitted(self, returned: Any, field: pa.Field) -> pa.Array:
        array = one_chunk(returned) if isinstance(returned, pa.ChunkedArray) else returned
        if not isinstance(array, pa.Array):
            array = pa.array(array)
        if len(array) != len(self._keys):
            raise ValueError(
                f"state {self._spec.name!r} needs one value per key: {len(array)} for {len(self._keys)} keys"
            )
        return array if array.type == field.type else array.cast(field.type)

    def _or_default(self, number: int, array: pa.Array) -> pa.Array:
        default = self._spec.default
        if default is None or not array.null_count:
            return array
        value = default() if callable(default) else default
        if self._spec.form == "record":
            name = self._spec.fields.names[number]
            value = value[name] if isinstance(value, dict) else getattr(value, name)
        return array.fill_null(pa.scalar(value, array.type))

    def changes(self) -> list[Change]:
        if self._new is None:
            return []
        there = np.ones(len(self._keys), np.bool_)
        for number, array in enumerate(self._new):
            null = array.is_null().to_numpy(zero_copy_only=False)
            there = ~null if number == 0 else there | ~null
        moved = there != self._found
        both = there & self._found
        moved |= both & ~equal_rows(self._new, self._old, len(self._keys))
        if not moved.any():
            return []
        columns = [
            *self._keys.columns.columns,
            *self._new,
            pa.array(self._keys.hashes),
            pa.array(there.astype(np.int64)),
        ]
        names = [*self._keys.columns.column_names, *self._spec.fields.names, HASH, WEIGHT]
        rows = pa.table(columns, names=names)
        return [Change(self._table.spec.name, rows if moved.all() else rows.filter(pa.array(moved)), True)]


def _emptied(array: pa.Array, absent: pa.Array) -> pa.Array:
    """Set NULL for the keys that have no value."""
    return pc.if_else(absent, pa.scalar(None, array.type), array)
