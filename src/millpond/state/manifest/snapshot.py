"""Reads every table of a pond as of one epoch.

Writers never change a committed file.  So isolation needs nothing but reading the files that one manifest
names (MVCC by epoch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from millpond import delta as deltas
from millpond import hashing
from millpond.errors import InvalidError
from millpond.state.manifest.history import read_manifest
from millpond.state.manifest.listing import Listing, PageCache
from millpond.state.manifest.manifest import Manifest
from millpond.state.runs.packed import PackedFile
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.store import Store
from millpond.state.tables.key_rows import KeyRows
from millpond.state.tables.repeat_by_weight import check_size, repeat_by_weight, repeat_in_batches
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_scan import TableScan
from millpond.state.tables.table_spec import TableSpec

OpenFile = Callable[[str], PackedFile]
HASH_MAX = 2**64 - 1


class Snapshot:
    def __init__(self, store: Store, manifest: Manifest, pages: PageCache, open_file: OpenFile) -> None:
        self.store = store
        self.manifest = manifest
        self._pages = pages
        self.open_file = open_file
        self._listing: Listing | None = None

    @property
    def epoch(self) -> int:
        return self.manifest.epoch

    @property
    def listing(self) -> Listing:
        if self._listing is None:
            self._listing = Listing.of(self.manifest, self._pages)
        return self._listing

    def at(self, epoch: int) -> Snapshot:
        if epoch == self.epoch:
            return self
        if epoch < self.manifest.floor:
            raise InvalidError(
                f"epoch {epoch} is no longer kept",
                detail=f"the oldest epoch that can be read is {self.manifest.floor}, the newest {self.epoch}",
                hint="keep more history with retain_epochs, or make a savepoint before it is needed",
                epoch=epoch,
            )
        return Snapshot(self.store, read_manifest(self.store, epoch), self._pages, self.open_file)

    def following(self, manifest: Manifest) -> Snapshot:
        """The same pond at a newer epoch, whose manifest is at hand."""
        return Snapshot(self.store, manifest, self._pages, self.open_file)

    def table(self, spec: TableSpec) -> Table:
        return Table(spec, self.runs(spec.name), self.open_file)

    def runs(self, table: str) -> Sequence[RunRef]:
        """The live runs of a table, except those of cleared buckets."""
        found, limit = self.listing.runs(table), self.manifest.cleared.get(table)
        if limit is None:
            return found
        return [r for r in found if r.bucket is not None and r.bucket >= limit]

    def scan(self, spec: TableSpec, columns: Sequence[str]) -> pa.Table:
        """All rows, repeated by weight, with these columns; sorted by (hash, key, order)."""
        scan = self._scan(spec, columns)
        if not scan.batches_are_sorted():
            return repeat_by_weight(scan.sorted(), columns)
        tables: list[pa.Table] = []
        rows = size = 0
        for batch in scan.batches():
            tables.append(repeat_by_weight(batch, columns))
            if spec.rule == "weights" and columns:
                rows, size = rows + tables[-1].num_rows, size + tables[-1].nbytes
                check_size(rows, size)
        return pa.concat_tables(tables) if tables else empty_rows(spec, columns)

    def scan_batches(self, spec: TableSpec, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The same rows, unordered and in batches: copies less, and needs memory for one batch at a time."""
        for batch in self._scan(spec, columns).batches():
            yield from repeat_in_batches(batch, columns)

    def scan_at_most(self, spec: TableSpec, columns: Sequence[str], rows_max: int) -> pa.Table | None:
        """All rows, unordered; None if there are more than `rows_max`."""
        if self.table(spec).count_rows_upper() > rows_max:
            return None
        tables: list[pa.Table] = []
        rows = 0
        for batch in self.scan_batches(spec, columns):
            tables.append(batch)
            rows += batch.num_rows
            if rows > rows_max:
                return None
        return pa.concat_tables(tables) if tables else empty_rows(spec, columns)

    def _scan(self, spec: TableSpec, columns: Sequence[str]) -> TableScan:
        return TableScan(spec, self.table(spec).runs, self.open_file, columns)

    def lookup(self, spec: TableSpec, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        return repeat_by_weight(self.lookup_counted(spec, keys, columns), columns)

    def lookup_counted(self, spec: TableSpec, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """The rows of some keys with their weights; equal rows are returned once."""
        return self.table(spec).lookup(KeySet.of(keys, spec.key), columns).table

    def key_rows(self, spec: TableSpec) -> KeyRows:
        """The rows of a table with a unique key, for lookups of one key at a time; this opens its files."""
        return KeyRows(spec, self.runs(spec.name), self.open_file)

    def changes(self, spec: TableSpec, columns: Sequence[str]) -> pa.Table:
        """The changes of this epoch in a table: a consolidated delta of these columns."""
        if self.manifest.kind == "rollback" or spec.name in self.manifest.metrics.get("rewrote", ()):
            return self._difference(spec, columns)
        runs = [r for r in self.manifest.added if r.table == spec.name and r.kind == "delta"]
        if not runs:
            return empty_delta(spec, columns)
        added = concat_runs(spec, runs, self.open_file)
        if spec.rule == "weights":
            return deltas.consolidate(visible(added, columns))
        hashes = hashing.hash_columns([added.column(k) for k in spec.key], added.num_rows)
        keys = KeySet.of(added.select(list(spec.key)), spec.key, hashes)
        if self.epoch == 0:  # the state with which a new pond starts
            return deltas.consolidate(visible(self.table(spec).lookup(keys).table, columns))
        before = self.at(self.epoch - 1).table(spec)
        old = before.lookup(keys).table
        if spec.order:
            new = self.table(spec).lookup(keys).table
        else:
            new = added.filter(pa.array(deltas.weights(added) > 0))
        return deltas.consolidate(
            deltas.concat([deltas.negate(visible(old, columns)), visible(new, columns)])
        )

    def _difference(self, spec: TableSpec, columns: Sequence[str]) -> pa.Table:
        before = self.at(self.epoch - 1)
        return difference(before, self, spec, columns)


def difference(
    before: Snapshot,
    after: Snapshot,
    spec: TableSpec,
    columns: Sequence[str],
    h_min: int = 0,
    h_max: int = HASH_MAX,
) -> pa.Table:
    """after - before for one table, in a range of hashes; reads only the runs that the two do not share."""
    old_runs = {(r.file, r.segment, r.h_min, r.h_max): r for r in before.listing.runs(spec.name)}
    new_runs = {(r.file, r.segment, r.h_min, r.h_max): r for r in after.listing.runs(spec.name)}
    odd = [r for i, r in old_runs.items() if i not in new_runs] + [
        r for i, r in new_runs.items() if i not in old_runs
    ]
    odd = clipped(odd, h_min, h_max)
    if not odd:
        return empty_delta(spec, columns)
    touched = concat_runs(spec, odd, after.open_file)
    keys = KeySet.of(touched.select(list(spec.key)), spec.key)
    old = before.table(spec).lookup(keys).table
    new = after.table(spec).lookup(keys).table
    return deltas.consolidate(deltas.concat([deltas.negate(visible(old, columns)), visible(new, columns)]))


def clipped(runs: Iterable[RunRef], h_min: int, h_max: int) -> list[RunRef]:
    """The parts of some runs in a range of hashes."""
    return [
        replace(r, h_min=max(r.h_min, h_min), h_max=min(r.h_max, h_max))
        for r in runs
        if r.meets(h_min, h_max)
    ]


def concat_runs(spec: TableSpec, runs: Sequence[RunRef], open_file: OpenFile) -> pa.Table:
    """The raw rows of some runs, tombstones included."""
    parts = []
    for ref in runs:
        segment = open_file(ref.file).segment(ref.segment)
        start, stop = segment.cut(ref.h_min, ref.h_max)
        names = [*spec.schema.names, deltas.WEIGHT]
        fill = spec.fill
        parts.append(pa.table({n: segment.slice(n, start, stop, fill.get(n)) for n in names}))
    return deltas.concat(parts)


def visible(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    keep = [*columns, deltas.WEIGHT] if deltas.WEIGHT in rows.column_names else list(columns)
    return rows.select(keep)


def empty_rows(spec: TableSpec, columns: Sequence[str]) -> pa.Table:
    return pa.schema([spec.schema.field(c) for c in columns]).empty_table()


def empty_delta(spec: TableSpec, columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([spec.schema.field(c) for c in columns] + [pa.field(deltas.WEIGHT, pa.int64())])
    return schema.empty_table()
