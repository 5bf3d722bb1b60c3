"""Reads the changes of a view for Spark Structured Streaming; an offset is an epoch.

Law: a batch from one offset to another has the same rows whenever it is read, so a query that restarts from
its checkpoint sees every epoch once.  Epochs that were collected meanwhile are an error.  A rollback of the
pond is an epoch like any other, whose changes lead back to the older rows.

The epochs of a batch are pinned from its planning until Spark has committed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from millpond.errors import InvalidError
from millpond.plan.view_changes import view_difference
from millpond.serve.reader import Reader
from millpond.spark_bridge.batch_reader import HASHES, hash_ranges, spark_batches
from millpond.spark_bridge.feed_rows import (
    changes,
    epoch_rows,
    mode_of,
    snapshot_rows,
    unique_key,
    upserts,
    with_feed_columns,
    without_feed_columns,
)
from millpond.spark_bridge.loaded_view import LoadedView, find_view, pin_for_tasks, shown_names
from millpond.spark_bridge.options import SparkOptions
from millpond.spark_bridge.pond_location import opened, worker_of
from millpond.spark_bridge.spark_types import arrow_schema, spark_schema
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.pins import Pin, let_go
from millpond.state.tables.table_scan import TableScan

PARTITIONS = 8  # tasks that read the epochs of one batch, at most
Offset = dict[str, Any]


class SnapshotPartition(InputPartition):
    """The rows of one epoch in a range of key hashes: the start of a stream."""

    def __init__(self, epoch: int, h_min: int, h_max: int, pin: Pin | None) -> None:
        super().__init__((epoch, h_min, h_max))
        self.pin = pin  # protects the epoch


class EpochsPartition(InputPartition):
    """The changes of all epochs from the first to the last."""

    def __init__(self, first: int, last: int, pin: Pin | None) -> None:
        super().__init__((first, last))
        self.pin = pin  # protects these epochs and the one before


def feed_schema(loaded: LoadedView, options: SparkOptions) -> StructType:
    """The columns of a read; a streaming read in some modes has more than the view."""
    return spark_schema(with_feed_columns(loaded.schema, mode_of(options)))


class ViewChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a streaming query, in one process that lives as long as the query.

    Its copies in the tasks read the partitions.
    """

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        options.require_use("readStream")
        self.options = options
        self.view = options.text("view", "readStream")
        self.mode = mode_of(options)
        self.arrow_schema = arrow_schema(schema)
        self.epochs_max = options.number("maxEpochsPerTrigger", 0, 0)
        self._target: int | None = None  # the last epoch of a query that ends when it has read all
        self._pins: dict[int, Pin | None] = {}  # by the last epoch of their batch

    # -- offsets ------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        with opened(self.options, "readStream") as reader, reader.pinned() as snapshot:
            head = snapshot.manifest
            if self.mode == "upsert":
                unique_key(find_view(reader, snapshot, self.view), self.view)
        start = self.options.get("startingEpoch") or "snapshot"
        if start == "snapshot":
            return _offset(head, -1, snapshot=True)
        if start == "latest":
            return _offset(head, head.epoch)
        if not start.isdecimal() or int(start) > head.epoch + 1:
            raise InvalidError(
                f"a stream cannot start at epoch {start!r}",
                detail=f"the newest epoch is {head.epoch}",
                hint='"snapshot", "latest", or the number of the first epoch whose changes are read',
            )
        return _offset(head, int(start) - 1)

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most some epochs a batch; of the limits that Spark knows, that of files is nearest."""
        return ReadMaxFiles(self.epochs_max) if self.epochs_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with opened(self.options, "readStream") as reader:
            self._target = reader.head().epoch

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        with opened(self.options, "readStream") as reader:
            head = reader.head()
        _require_same_pond(head, start)
        last = head.epoch if self._target is None else min(head.epoch, self._target)
        if isinstance(limit, ReadMaxFiles) and not start["snapshot"]:
            last = min(last, start["epoch"] + limit.max_files)
        return start if last <= start["epoch"] else _offset(head, last)

    def reportLatestOffset(self) -> Offset | None:
        with opened(self.options, "readStream") as reader:
            head = reader.head()
        return _offset(head, head.epoch)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        first, last = start["epoch"] + 1, end["epoch"]
        if last < first:
            return []
        with opened(self.options, "readStream") as reader:
            _require_same_pond(reader.head(), start)
            if start["snapshot"]:
                with reader.pinned(last) as snapshot:
                    pin = self._pins[last] = pin_for_tasks(reader, last)
                    table = snapshot.table(find_view(reader, snapshot, self.view).spec)
                    ranges = hash_ranges(table.count_rows_upper(), self.options)
                return [SnapshotPartition(last, low, high, pin) for low, high in (r.value for r in ranges)]
            before = max(0, first - 1)
            with reader.pinned_range(before, last):
                pin = self._pins[last] = pin_for_tasks(reader, before, last)
        if self.mode == "upsert":
            return [EpochsPartition(first, last, pin)]
        size = -(-(last - first + 1) // self.options.number("partitions", PARTITIONS))
        return [EpochsPartition(e, min(e + size - 1, last), pin) for e in range(first, last + 1, size)]

    def commit(self, end: Offset) -> None:
        self._unpin(end["epoch"])

    def stop(self) -> None:
        self._unpin(max(self._pins, default=-1))

    def _unpin(self, last: int) -> None:
        store = worker_of(self.options, "readStream").store
        for epoch in [e for e in self._pins if e <= last]:
            let_go(store, self._pins.pop(epoch))

    # -- rows ---------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with opened(self.options, "readStream") as reader:
            for rows in self._rows(reader, partition):
                self._require_columns(rows)
                yield from spark_batches(rows, self.arrow_schema)

    def _rows(self, reader: Reader, partition: InputPartition) -> Iterator[pa.Table]:
        if isinstance(partition, SnapshotPartition):
            epoch, h_min, h_max = partition.value
            yield from self._snapshot_rows(reader, epoch, h_min, h_max, partition.pin)
            return
        assert isinstance(partition, EpochsPartition)
        (first, last), pin = partition.value, partition.pin
        if self.mode != "upsert":
            for epoch, delta in changes(reader, self.view, first, last, pin):
                yield epoch_rows(delta, epoch, self.mode, self.view)
        elif first == 0:  # there is no epoch before it to compare with
            yield from self._snapshot_rows(reader, last, 0, HASHES - 1, pin)
        else:
            with reader.pinned_range(first - 1, last, by=pin) as (before, after):
                net = view_difference(before, after, self.view, reader.plan_of)
                if net is not None:
                    key = unique_key(find_view(reader, after, self.view), self.view)
                    yield upserts(net, key, last)

    def _snapshot_rows(
        self, reader: Reader, epoch: int, h_min: int, h_max: int, pin: Pin | None
    ) -> Iterator[pa.Table]:
        with reader.pinned(epoch, by=pin) as snapshot:
            view = find_view(reader, snapshot, self.view)
            wanted = without_feed_columns(self.arrow_schema.names, self.mode)
            columns = [stored for stored, shown in shown_names(view).items() if shown in wanted]
            runs = snapshot.runs(view.spec.name)
            for rows in TableScan(view.spec, runs, reader.worker.open_file, columns, h_min, h_max).batches():
                yield snapshot_rows(view.view.shown(rows), epoch, self.mode)

    def _require_columns(self, rows: pa.Table) -> None:
        missing = [name for name in self.arrow_schema.names if name not in rows.column_names]
        if missing:
            raise InvalidError(
                f"view {self.view!r} has no column {missing[0]!r} any more",
                detail=f"its columns are {', '.join(rows.column_names)} now",
                hint="start the query again with a new checkpoint",
            )


def _offset(head: Manifest, epoch: int, *, snapshot: bool = False) -> Offset:
    return {"pond": head.pond, "epoch": epoch, "snapshot": snapshot}


def _require_same_pond(head: Manifest, start: Offset) -> None:
    if head.pond != start["pond"]:
        raise InvalidError(
            "the checkpoint of this query is of another pond",
            detail=f"the checkpoint is of pond {start['pond']}, this pond is {head.pond}",
            hint="start the query with a new checkpoint",
        )
    if head.epoch < start["epoch"]:
        raise InvalidError(
            "the pond is older than the checkpoint of this query",
            detail=f"the query has read epoch {start['epoch']}, the newest epoch is {head.epoch}",
            hint="was the pond restored from a backup? start the query with a new checkpoint",
        )
