"""Writes runs for complete state tables, for the takeover commit; used by bootstrap and migration.

Law 2: nothing is visible before that commit, and then all of it is.  Files that no commit names are garbage
and are collected as such.  Memory is bounded by a unit, one hash range of a table, not by the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from millpond.engine.change.state_rows import refuse_twice
from millpond.engine.coordinator.protocol import StateRewrite
from millpond.engine.task.worker import Worker
from millpond.state.manifest.listing import Listing
from millpond.state.manifest.manifest import Manifest, run_id
from millpond.state.runs import run_names
from millpond.state.runs.compaction import cut_units
from millpond.state.runs.merge import merge_segments
from millpond.state.runs.packed_writer import PackedWriter
from millpond.state.runs.run_ref import RunRef
from millpond.state.tables.table import Table
from millpond.state.tables.table_spec import TableSpec

UNIT_BYTES = 32 << 20  # of runs that are read together


class StateRewriter:
    """Collects the runs that are written for a pond whose head is `head`."""

    def __init__(self, worker: Worker, head: Manifest, unit_bytes: int = UNIT_BYTES) -> None:
        self.worker = worker
        self.head = head
        self.unit_bytes = unit_bytes
        self.listing = Listing.of(head, worker.pages)
        self._specs: dict[str, TableSpec] = {}
        self._steps: dict[str, str] = {}
        self._runs: dict[tuple[str, int | None], list[RunRef]] = {}
        self._replaced: set[str] = set()

    def replace(self, table: str) -> None:
        """Remove the current runs of a table."""
        self._replaced.add(table)

    def units(self, spec: TableSpec) -> Iterator[pa.Table]:
        """The current rows of a table, without hash and weight, one unit at a time."""
        refs = self.listing.runs(spec.name)
        for h_min, h_max in self._units(refs):
            rows = Table(spec, refs, self.worker.open_file, h_min, h_max).scan()
            if rows.num_rows:
                yield rows.select(spec.schema.names)

    def is_empty(self, spec: TableSpec) -> bool:
        refs = self.listing.runs(spec.name)
        units = self._units(refs) if refs else ()
        return not any(
            Table(spec, refs, self.worker.open_file, h_min, h_max).scan(list(spec.key)).num_rows
            for h_min, h_max in units
        )

    def write(self, step: str, parts: Iterable[tuple[TableSpec, pa.Table]]) -> None:
        """Write these rows of some tables into one file."""
        writer = PackedWriter()
        for spec, rows in parts:
            self._specs[spec.name], self._steps[spec.name] = spec, step
            for bucket, some in _by_bucket(spec, rows):
                if spec.rule == "latest":
                    refuse_twice(step, spec, some)
                writer.add(spec, some, bucket=bucket)
        for ref in self._put(writer):
            self._runs.setdefault((ref.table, ref.bucket), []).append(ref)

    def finish(self) -> StateRewrite:
        """The new runs, with each hash of a table in one run, and the runs that they replace."""
        files = {ref.file for refs in self._runs.values() for ref in refs}
        added = [ref for key, refs in self._runs.items() for ref in self._disjoint(*key, refs)]
        for name in files - {ref.file for ref in added}:  # merged: no commit will name them
            self.worker.store.delete(name)
        tables = {*self._specs, *self._replaced}
        removed = [run_id(ref) for table in sorted(self._replaced) for ref in self.listing.runs(table)]
        return StateRewrite(self.head.nonce, tuple(sorted(tables)), tuple(added), tuple(removed))

    def _disjoint(self, table: str, bucket: int | None, refs: list[RunRef]) -> list[RunRef]:
        """The runs unchanged if their hashes are disjoint, else merged; duplicate rows are refused."""
        refs = sorted(refs, key=lambda ref: ref.h_min)
        if all(before.h_max < after.h_min for before, after in pairwise(refs)):
            return refs
        spec = self._specs[table]
        disjoint = []
        for h_min, h_max in self._units(refs):
            rows = merge_segments(spec, refs, self.worker.open_file, h_min, h_max)
            if spec.rule == "latest" and rows.num_rows < self._count(refs, h_min, h_max):
                every = [merge_segments(spec, [ref], self.worker.open_file, h_min, h_max) for ref in refs]
                refuse_twice(self._steps[table], spec, pa.concat_tables(every))
            if rows.num_rows:
                writer = PackedWriter()
                writer.add(spec, rows, bucket=bucket, presorted=True)
                disjoint += self._put(writer)
        return disjoint

    def _count(self, refs: Iterable[RunRef], h_min: int, h_max: int) -> int:
        cuts = (self.worker.open_file(ref.file).segment(ref.segment).cut(h_min, h_max) for ref in refs)
        return sum(stop - start for start, stop in cuts)

    def _units(self, refs: Iterable[RunRef]) -> tuple[tuple[int, int], ...]:
        return cut_units(max(1, math.ceil(sum(ref.bytes for ref in refs) / self.unit_bytes)))

    def _put(self, writer: PackedWriter) -> list[RunRef]:
        buffers, infos = writer.finish()
        if not infos:
            return []
        epoch, token = self.head.epoch + 1, self.head.token + 1
        name = run_names.new_name(token, epoch, run_names.REWRITE)
        run_names.put_run(self.worker.store, name, buffers)
        return [info.ref(name, lo=epoch, hi=epoch, kind="delta") for info in infos]


def _by_bucket(spec: TableSpec, rows: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    if spec.time is None:
        yield None, rows
    elif rows.num_rows:
        numbers = spec.buckets(rows)
        for bucket in np.unique(numbers).tolist():
            yield bucket, rows.filter(pa.array(numbers == bucket))
