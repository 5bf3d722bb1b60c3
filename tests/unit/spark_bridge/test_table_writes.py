"""Writes of DataFrames into a table: whole or not at all, each batch of a query once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import millpond
from millpond.errors import InvalidError
from millpond.spark_bridge import table_writer
from millpond.spark_bridge.table_writer import TaskRows
from tests.unit.spark_bridge.data_source_calls import source

SCHEMA = StructType().add("k", "long").add("s", "string")


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[millpond.Pond]:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.table("t", {"k": int, "s": str})
        pond.drain()
        yield pond


def place(pond: millpond.Pond) -> str:
    return pond.store.uri


def batch(*keys: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": list(keys), "s": [str(k) for k in keys]})


def keys(pond: millpond.Pond) -> list[int]:
    pond.drain()
    return sorted(pond.read("t").column("k").to_pylist())


def test_a_batch_is_one_entry(pond: millpond.Pond) -> None:
    writer = source(place(pond), table="t").writer(SCHEMA, False)
    tasks = [
        writer.write(iter([batch(1, 2), batch(3)])),
        writer.write(iter([])),
        writer.write(iter([batch(4)])),
    ]
    assert keys(pond) == [], "tasks write nothing"
    writer.commit(tasks)
    epoch = pond.head().epoch
    assert keys(pond) == [1, 2, 3, 4]
    assert pond.head().epoch == epoch + 1


def test_a_batch_without_rows(pond: millpond.Pond) -> None:
    writer = source(place(pond), table="t").writer(SCHEMA, False)
    writer.commit([writer.write(iter([]))])
    writer.commit([])
    assert keys(pond) == []


def stream_commit(pond: millpond.Pond, query: str, number: int, *found: int) -> None:
    writer = source(place(pond), table="t").streamWriter(SCHEMA, False)
    rows = writer.write(iter([batch(*found)]))
    writer.commit([TaskRows(rows.rows, query)], number)


def test_a_batch_of_a_query_counts_once(pond: millpond.Pond) -> None:
    stream_commit(pond, "q", 0, 1)
    stream_commit(pond, "q", 0, 1)  # again, before the pond has executed it
    assert keys(pond) == [1]
    stream_commit(pond, "q", 0, 1)  # and after
    stream_commit(pond, "q", 1, 2)
    stream_commit(pond, "other", 0, 3)
    assert keys(pond) == [1, 2, 3]


def test_the_id_of_a_batch_write(pond: millpond.Pond) -> None:
    for _ in range(3):
        writer = source(place(pond), table="t", client="nightly", batch=20240101).writer(SCHEMA, False)
        writer.commit([writer.write(iter([batch(1)]))])
    assert keys(pond) == [1]


@pytest.mark.parametrize(
    "options, schema, overwrite, words",
    [
        ({"table": "x"}, SCHEMA, False, "no table named 'x'"),
        ({"table": "t"}, StructType().add("k", "long"), False, "lack column 's'"),
        ({"table": "t"}, StructType(list(SCHEMA.fields)).add("z", "long"), False, "has no column 'z'"),
        ({"table": "t"}, SCHEMA, True, "cannot be overwritten"),
        ({"table": "t", "client": "a"}, SCHEMA, False, "need each other"),
        ({"view": "t"}, SCHEMA, False, "'view' does not apply to write"),
        ({}, SCHEMA, False, "needs the option 'table'"),
    ],
)
def test_refusals(
    pond: millpond.Pond, options: dict[str, Any], schema: StructType, overwrite: bool, words: str
) -> None:
    with pytest.raises(InvalidError, match=words):
        source(place(pond), **options).writer(schema, overwrite)


def test_a_write_that_is_too_large(pond: millpond.Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_writer, "TASK_BYTES_MAX", 10_000)
    writer = source(place(pond), table="t").writer(SCHEMA, False)
    with pytest.raises(InvalidError, match="too many rows in one write"):
        writer.write(iter([batch(*range(100_000))]))
