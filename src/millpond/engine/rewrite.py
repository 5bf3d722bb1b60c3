"""Writing state anew: runs for whole tables, ready for the commit that takes the pond over.

Law 2: nothing is visible before that commit, and then all of it is. Files that
no commit named are garbage and collected as such. Memory follows a unit, a
piece of a table cut by hash range, not the table.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from millpond.engine.protocol import Rewrite
from millpond.engine.state_rows import refuse_twice
from millpond.engine.worker import Worker
from millpond.errors import InternalError
from millpond.state.compaction import cut_units
from millpond.state.listing import Listing
from millpond.state.manifest import Manifest, run_id
from millpond.state.merge import merge_segments
from millpond.state.packed import PackedWriter
from millpond.state.run_ref import RunRef
from millpond.state.store import Put
from millpond.state.table import Table
from millpond.state.table_spec import TableSpec

UNIT_BYTES = 32 << 20  # of runs that are read at once


class Rewriter:
    """Collects what is written for the tables of a pond whose head is `head`."""

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
        """The runs that a table has now will be gone."""
        self._replaced.add(table)

    def pieces(self, spec: TableSpec) -> Iterator[pa.Table]:
        """The rows that a table has now, without hash and weight, a unit at a time."""
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
        """One file with these rows of some tables."""
        writer = PackedWriter()
        for spec, rows in parts:
            self._specs[spec.name], self._steps[spec.name] = spec, step
            for bucket, some in _by_bucket(spec, rows):
                if spec.rule == "latest":
                    refuse_twice(step, spec, some)
                writer.add(spec, some, bucket=bucket)
        for ref in self._put(writer):
            self._runs.setdefault((ref.table, ref.bucket), []).append(ref)

    def finish(self) -> Rewrite:
        """All that was written, with each hash of a table in one run, and what it takes the place of."""
        files = {ref.file for refs in self._runs.values() for ref in refs}
        added = [ref for place, refs in self._runs.items() for ref in self._settled(*place, refs)]
        for name in files - {ref.file for ref in added}:  # merged, and named by no commit
            self.worker.store.delete(name)
        tables = {*self._specs, *self._replaced}
        removed = [run_id(ref) for table in sorted(self._replaced) for ref in self.listing.runs(table)]
        return Rewrite(self.head.nonce, tuple(sorted(tables)), tuple(added), tuple(removed))

    def _settled(self, table: str, bucket: int | None, refs: list[RunRef]) -> list[RunRef]:
        """Runs with disjoint hashes as they are, others merged; a row that comes twice is refused."""
        refs = sorted(refs, key=lambda ref: ref.h_min)
        if all(before.h_max < after.h_min for before, after in pairwise(refs)):
            return refs
        spec = self._specs[table]
        found = []
        for h_min, h_max in self._units(refs):
            rows = merge_segments(spec, refs, self.worker.open_file, h_min, h_max)
            if spec.rule == "latest" and rows.num_rows < self._count(refs, h_min, h_max):
                every = [merge_segments(spec, [ref], self.worker.open_file, h_min, h_max) for ref in refs]
                refuse_twice(self._steps[table], spec, pa.concat_tables(every))
            if rows.num_rows:
                writer = PackedWriter()
                writer.add(spec, rows, bucket=bucket, presorted=True)
                found += self._put(writer)
        return found

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
        name = f"runs/{token}/{epoch:016d}-w-0-{os.urandom(8).hex()}"
        if self.worker.store.put_new(name, buffers) is not Put.WON:
            raise InternalError("a random run name was already taken", detail=name)
        return [info.ref(name, lo=epoch, hi=epoch, kind="delta") for info in infos]


def _by_bucket(spec: TableSpec, rows: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    if spec.time is None:
        yield None, rows
    elif rows.num_rows:
        numbers = spec.buckets(rows)
        for bucket in np.unique(numbers).tolist():
            yield bucket, rows.filter(pa.array(numbers == bucket))
