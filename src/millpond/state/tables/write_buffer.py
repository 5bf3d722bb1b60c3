"""Buffers changes of tables that are not written yet, and makes them readable.

A step that is applied several times within one epoch must see its earlier changes.  Each application creates
a small run in memory, newer than those of epoch e-1.  At the end of the epoch they become one change per
table, as if the step had been applied once.

Runs of similar size are merged as they arrive, so a table has at most a logarithmic number of them (law 5).
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from millpond.delta import WEIGHT, concat, weights, with_weights
from millpond.state.runs.merge import merge_segments
from millpond.state.runs.packed import PackedFile
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.table import Table
from millpond.state.tables.table_spec import TableSpec

_AFTER_ALL = 1 << 62  # newer than any epoch


class WriteBuffer:
    """
    >>> spec = TableSpec("s/out", pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k",))
    >>> fresh = WriteBuffer({"s/out": spec})
    >>> fresh.add("s/out", pa.table({"k": [1, 2], "n": [10, 20]}))
    >>> fresh.add("s/out", pa.table({"k": [2], "n": [21]}))
    >>> fresh.merged("s/out").select(["k", "n"]).sort_by("k").to_pylist()
    [{'k': 1, 'n': 10}, {'k': 2, 'n': 21}]
    """

    def __init__(self, specs: Mapping[str, TableSpec]) -> None:
        self._specs = specs
        self._files: dict[str, PackedFile] = {}
        self._runs: dict[str, list[RunRef]] = {}  # oldest first
        self._waiting: dict[str, list[pa.Table]] = {}  # until the table is read
        self._made = 0

    def add(self, table: str, rows: pa.Table) -> None:
        """Add rows to a table, newer than all before."""
        self._waiting.setdefault(table, []).append(rows)

    def applied_to(self, table: Table) -> Table:
        """A table as of epoch e-1 with the buffered changes."""
        runs = self._settled(table.spec)
        return table.with_runs(runs, self._files) if runs else table

    def merged(self, table: str) -> pa.Table | None:
        """All changes of a table as one sorted change; None if there are none."""
        runs = self._settled(self._specs[table])
        return merge_segments(self._specs[table], runs, self._files.__getitem__) if runs else None

    def _settled(self, spec: TableSpec) -> list[RunRef]:
        runs = self._runs.setdefault(spec.name, [])
        waiting = self._waiting.pop(spec.name, [])
        if len(waiting) > 1 and spec.rule == "weights":  # the order of sums does not matter
            names = [*spec.schema.names, WEIGHT]
            waiting = [concat([with_weights(rows, weights(rows)).select(names) for rows in waiting])]
        for rows in waiting:
            self._made += 1
            self._write(runs, spec, rows, _AFTER_ALL + self._made, _AFTER_ALL + self._made)
            while len(runs) > 1 and runs[-2].rows <= 2 * runs[-1].rows:
                two = [runs.pop(-2), runs.pop()]
                merged = merge_segments(spec, two, self._files.__getitem__)
                for ref in two:
                    del self._files[ref.file]
                self._write(runs, spec, merged, two[0].lo, two[1].hi)
        return runs

    def _write(self, runs: list[RunRef], spec: TableSpec, rows: pa.Table, lo: int, hi: int) -> None:
        """Add a run, unless no rows are left."""
        writer = PackedWriter()
        if writer.add(spec, rows) is None:
            return
        buffers, (info,) = writer.finish()
        file = f"fresh/{spec.name}/{lo}-{hi}"
        self._files[file] = PackedFile.open(file, pa.py_buffer(b"".join(buffers)))
        runs.append(info.ref(file, lo=lo, hi=hi, kind="delta"))
