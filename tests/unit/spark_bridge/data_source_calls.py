"""Calls a data source as Spark does, without a JVM: the source and the readers are pickled between processes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, Filter

from pyspark_millpond import DefaultSource


def source(path: Path | str, **options: Any) -> DefaultSource:
    given = {"path": str(path), **{name.replace("__", "."): str(value) for name, value in options.items()}}
    return DefaultSource(CaseInsensitiveDict(given))


def loaded(path: Path | str, **options: Any) -> tuple[DefaultSource, Any]:
    """A data source after `load()`, and its schema."""
    made = source(path, **options)
    schema = made.schema()
    return pickle.loads(pickle.dumps(made)), schema


def read(made: DefaultSource, schema: Any, filters: Sequence[Filter] = ()) -> pa.Table:
    """All rows of a batch read, partition by partition."""
    reader = made.reader(schema)
    if filters:
        reader.pushFilters(list(filters))
    partitions = [pickle.loads(pickle.dumps(p)) for p in reader.partitions()]
    return read_partitions(reader, partitions)


def read_partitions(reader: Any, partitions: Sequence[Any]) -> pa.Table:
    reader = pickle.loads(pickle.dumps(reader))
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return pa.Table.from_batches(batches, schema=reader.arrow_schema)
