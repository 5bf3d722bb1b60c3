"""Reads the answer of a SQL query for Spark, as the option `query` of Spark's JDBC source does.

Spark 4.3 pushes neither columns nor aggregates into data sources in Python.  A query that runs here reads the
columns that it needs, and only its answer is sent to Spark.

Law: all actions of a DataFrame read the epoch at which it was loaded, in one task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from millpond.errors import InvalidError
from millpond.pond.api import open as open_pond
from millpond.spark_bridge.batch_reader import spark_batches
from millpond.spark_bridge.loaded_view import pin_for_tasks
from millpond.spark_bridge.options import SparkOptions
from millpond.spark_bridge.pond_location import opened
from millpond.spark_bridge.spark_types import arrow_schema, spark_schema
from millpond.state.manifest.pins import Pin

OF_VIEWS = ("view", "columns", "keys", "partitions", "pushFilters")  # options that a query has no use for


@dataclass(frozen=True)
class LoadedQuery:
    """A query, the epoch of its DataFrame, and the columns of its answer."""

    text: str
    epoch: int
    schema: pa.Schema
    pin: Pin | None

    @property
    def spark_schema(self) -> StructType:
        return spark_schema(self.schema)


def load_query(options: SparkOptions, text: str) -> LoadedQuery:
    """Choose the epoch of a DataFrame, pin it, and find the columns of the answer."""
    for name in OF_VIEWS:
        if options.get(name) is not None:
            raise InvalidError(
                f"option {name!r} does not apply to a query",
                hint='write it into the query, for example .option("query", "SELECT a, b FROM totals")',
            )
    with opened(options, "read") as reader, reader.pinned(options.epoch) as snapshot:
        epoch = snapshot.epoch
        schema = answer(options, text, epoch, rows=False).schema
        return LoadedQuery(text, epoch, schema, pin_for_tasks(reader, epoch))


def answer(options: SparkOptions, text: str, epoch: int, *, rows: bool = True) -> pa.Table:
    """The answer of a query at an epoch; without `rows` only its columns."""
    query = f"SELECT * FROM ({text.strip().rstrip(';')}\n) AS query WHERE {rows} AS OF EPOCH {epoch}"
    path = options.text("path", "read")
    with contextlib.closing(open_pond(path, "inline", store_options=options.store)) as pond:
        return pond.sql(query).arrow()


class QueryReader(DataSourceReader):
    """Runs the query in one task."""

    def __init__(self, options: SparkOptions, loaded: LoadedQuery, schema: StructType) -> None:
        options.require_use("read")
        if schema != loaded.spark_schema:
            raise InvalidError(
                "the columns of a query are those of its answer",
                detail=f"they are {loaded.spark_schema.simpleString()}",
                hint="leave out .schema(...), and choose and cast columns in the query",
            )
        self.options = options
        self.loaded = loaded
        self.arrow_schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        with opened(self.options, "read") as reader, reader.pinned(self.loaded.epoch, by=self.loaded.pin):
            self.loaded = replace(self.loaded, pin=pin_for_tasks(reader, self.loaded.epoch))
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with opened(self.options, "read") as reader, reader.pinned(self.loaded.epoch, by=self.loaded.pin):
            rows = answer(self.options, self.loaded.text, self.loaded.epoch)
        yield from spark_batches(rows, self.arrow_schema)
