"""Reads a view for Spark: one partition per range of key hashes, or a point lookup.

Law: all partitions, retries and later actions of a DataFrame read the epoch at which it was loaded.  Each
task pins that epoch before it reads; so an epoch that was collected is an error, not a different answer.

Spark 4.3 plans a read once for each `load()` and keeps the plan, with the filters that were pushed last, for
every other query of the same DataFrame.  A reader that uses these filters returns wrong rows to the other
queries.  So they are used only with the option `pushFilters`; keys to look up are an option of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from millpond.errors import InvalidError
from millpond.plan.view_changes import ViewTable
from millpond.serve.reader import Reader, keys_table
from millpond.spark_bridge.loaded_view import (
    LoadedView,
    find_view,
    pin_for_tasks,
    shown_names,
    shown_schema,
)
from millpond.spark_bridge.options import SparkOptions
from millpond.spark_bridge.pond_location import opened
from millpond.spark_bridge.pushed_filters import columns_of, condition, keys_of
from millpond.spark_bridge.spark_types import arrow_schema, for_spark
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.tables.repeat_by_weight import repeat_in_batches
from millpond.state.tables.table_scan import TableScan

BATCH_ROWS = 65_536  # of one Arrow batch that is sent to the JVM
PARTITION_ROWS = 1_000_000  # a larger view gets another partition
PARTITIONS_MAX = 256
HASHES = 1 << 64


class HashRangePartition(InputPartition):
    """A range of key hashes of a view; both ends are included."""

    def __init__(self, h_min: int, h_max: int) -> None:
        super().__init__((h_min, h_max))


class LookupPartition(InputPartition):
    """Some keys of a view, under the stored names of their columns."""

    def __init__(self, keys: pa.Table) -> None:
        super().__init__(keys.num_rows)
        self.keys = keys


class ViewBatchReader(DataSourceReader):
    """Plans the partitions of a view, and reads them in tasks."""

    def __init__(self, options: SparkOptions, loaded: LoadedView, schema: StructType) -> None:
        options.require_use("read")
        self.options = options
        self.loaded = loaded.declared(schema)
        self.arrow_schema = arrow_schema(schema)
        self.filters: list[Filter] = []

    def partitions(self) -> Sequence[InputPartition]:
        with opened(self.options, "read") as reader, self._pinned(reader) as snapshot:
            view = find_view(reader, snapshot, self.loaded.name)
            self.loaded = replace(self.loaded, pin=pin_for_tasks(reader, snapshot.epoch))
            keys = self._keys(view)
            if keys is not None:
                return [LookupPartition(keys)]
            return hash_ranges(snapshot.table(view.spec).count_rows_upper(), self.options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with opened(self.options, "read") as reader, self._pinned(reader) as snapshot:
            view = find_view(reader, snapshot, self.loaded.name)
            keep = condition(self.filters, shown_schema(view))
            for rows in self._rows(reader, snapshot, view, partition):
                shown = view.view.shown(rows)
                yield from spark_batches(shown if keep is None else shown.filter(keep), self.arrow_schema)

    def _pinned(self, reader: Reader) -> AbstractContextManager[Snapshot]:
        return reader.pinned(self.loaded.epoch, by=self.loaded.pin)

    def _rows(
        self, reader: Reader, snapshot: Snapshot, view: ViewTable, partition: InputPartition
    ) -> Iterator[pa.Table]:
        """The rows of a partition; only the columns that are sent or filtered."""
        needed = {*self.loaded.columns, *columns_of(self.filters)}
        columns = [stored for stored, shown in shown_names(view).items() if shown in needed]
        if isinstance(partition, LookupPartition):
            yield snapshot.lookup(view.spec, partition.keys, columns)
            return
        runs, (h_min, h_max) = snapshot.runs(view.spec.name), partition.value
        for batch in TableScan(view.spec, runs, reader.worker.open_file, columns, h_min, h_max).batches():
            yield from repeat_in_batches(batch, columns)

    def _keys(self, view: ViewTable) -> pa.Table | None:
        """The keys to look up: those of the option `keys`, or those that the filters fix."""
        shown = shown_names(view)
        given = self.options.get("keys")
        if given is not None:
            return keys_table(
                view.spec, _parsed_keys(given, {name: stored for stored, name in shown.items()})
            )
        if any(name not in shown for name in view.spec.key):
            return None  # the view does not show its key
        found = keys_of(self.filters, [shown[name] for name in view.spec.key], shown_schema(view))
        return None if found is None else found.rename_columns(list(view.spec.key))


class FilteringViewReader(ViewBatchReader):
    """Uses the filters that Spark pushes; needs spark.sql.python.filterPushdown.enabled."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Remember the filters; all of them are returned, so that Spark evaluates them again."""
        self.filters = list(filters)
        return filters


def view_reader(options: SparkOptions, loaded: LoadedView, schema: StructType) -> ViewBatchReader:
    kind = FilteringViewReader if options.flag("pushFilters") else ViewBatchReader
    return kind(options, loaded, schema)


def hash_ranges(rows: int, options: SparkOptions) -> list[InputPartition]:
    """Ranges that cover all hashes: as many as asked for, or one for every million rows."""
    count = options.number("partitions", min(PARTITIONS_MAX, max(1, -(-rows // PARTITION_ROWS))))
    edges = [HASHES * n // count for n in range(count + 1)]
    return [HashRangePartition(low, high - 1) for low, high in pairwise(edges)]


def spark_batches(rows: pa.Table, schema: pa.Schema) -> Iterator[Any]:
    """Rows as the batches that Spark receives."""
    for batch in for_spark(rows, schema).to_batches(max_chunksize=BATCH_ROWS):
        if batch.num_rows:
            yield batch


def _parsed_keys(text: str, stored_names: dict[str, str]) -> Any:
    """The keys of the option: a JSON value, or a list of values, of lists or of objects."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidError(
            "the option 'keys' must be JSON", detail=f"got {text!r}: {error}", hint='[1, 2] or [{"id": 1}]'
        ) from error
    keys = found if isinstance(found, list) else [found]
    return [
        {stored_names.get(n, n): v for n, v in one.items()} if isinstance(one, dict) else one for one in keys
    ]
