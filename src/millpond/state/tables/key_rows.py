"""Finds the row of one key in a *latest* table at one epoch.

Law: it finds what `Table.lookup` finds for the same key.  It exists for servers that look up one key at a
time: searching for a single hash needs no arrays, so a lookup costs a binary search in each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from millpond.delta import WEIGHT
from millpond.scalar_hashing import key_hasher
from millpond.state.runs.cells import Cell, cell_of
from millpond.state.runs.merge import OpenFile, newest_first
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.table_spec import TableSpec


def has_key_rows(spec: TableSpec) -> bool:
    """Has a table at most one row for each key, and no time buckets?"""
    return (
        spec.rule == "latest" and not spec.order_within_key and spec.bucket_width is None and bool(spec.key)
    )


class KeyRows:
    """The rows of a table by key; all files are opened when it is made."""

    def __init__(self, spec: TableSpec, runs: Sequence[RunRef], open_file: OpenFile) -> None:
        self.spec = spec
        self._fill = spec.fill
        self._key_types = [spec.schema.field(name).type for name in spec.key]
        self._hash = key_hasher(self._key_types)
        self._runs = [
            (ref.h_min, ref.h_max, open_file(ref.file).segment(ref.segment))
            for ref in newest_first(runs)
            if ref.rows
        ]

    def is_of(self, spec: TableSpec) -> bool:
        """Are these the rows of a table with this declaration?  It may have gained columns."""
        return self.spec is spec or self.spec == spec

    def find(self, key: Sequence[Any], columns: Sequence[str]) -> list[Cell] | None:
        """The columns of a key's row; None if there is no such row.

        The values of the key are Python's for the types of the key columns, and not NULL.
        """
        number = self._hash(key)
        wanted, asked = np.uint64(number), list(map(cell_of, key, self._key_types))
        for h_min, h_max, segment in self._runs:
            if not h_min <= number <= h_max:
                continue
            for row in segment.rows_of(wanted):
                if [segment.cell(name, row) for name in self.spec.key] == asked:
                    if segment.cell(WEIGHT, row) == 0:  # it was deleted
                        return None
                    return [segment.cell(name, row, self._fill.get(name)) for name in columns]
        return None
