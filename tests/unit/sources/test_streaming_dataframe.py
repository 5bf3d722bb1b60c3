"""Streaming DataFrames as sources: batches are staged once, failed queries are reported and started again.

A stand-in for Spark runs the batches; tests/spark/test_streaming_dataframe.py uses a real query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

import millpond
from millpond.errors import InvalidError, UnavailableError
from millpond.sources import streaming_dataframe
from millpond.sources.dataframe import DataFrameSource
from millpond.sources.streaming_dataframe import StreamingDataFrameSource, keep_staging


class StandInQuery:
    """A streaming query whose batches the test runs; `log` is Spark's record of the batches that it planned."""

    isStreaming = True
    schema = StructType().add("n", "long")

    def __init__(self) -> None:
        self.run: Callable[[Any, int], None] | None = None
        self.error: Exception | None = None
        self.isActive = False
        self.starts = 0
        self.checkpoint = ""

    @property
    def writeStream(self) -> StandInQuery:
        return self

    def foreachBatch(self, function: Callable[[Any, int], None]) -> StandInQuery:
        self.run = function
        return self

    def option(self, name: str, value: str) -> StandInQuery:
        self.checkpoint = value
        return self

    def start(self) -> StandInQuery:
        self.isActive, self.error = True, None
        self.starts += 1
        return self

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.isActive = False

    def batch(self, number: int, *rows: int) -> None:
        assert self.run is not None
        self.run(list(rows), number)


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInQuery]:
    def stage_files(rows: list[int], final: Path) -> None:
        final.mkdir(parents=True)
        pq.write_table(pa.table({"n": rows}), final / "part-0.parquet")
        (final / "_staged.json").write_text("{}")

    monkeypatch.setattr(streaming_dataframe, "stage_files", stage_files)
    yield StandInQuery()


def opened(path: Path, query: StandInQuery) -> millpond.Pond:
    pond = millpond.open(path, engine="inline")
    pond.stream("numbers", StreamingDataFrameSource(query)).aggregate(rows="count(*)", total="sum(n)").view(
        "sums"
    )
    return pond


def test_a_batch_that_runs_again_is_staged_once(tmp_path: Path, query: StandInQuery) -> None:
    with opened(tmp_path / "pond", query) as pond:
        assert query.starts == 0, "a definition starts nothing: a standby must not"
        pond.drain()
        assert query.starts == 1 and query.checkpoint == str(tmp_path / "pond/staged/numbers/checkpoint")
        query.batch(0, 1, 2)
        pond.drain()
        query.batch(0, 1, 2)  # Spark crashed before it recorded the batch
        query.batch(1, 10)
        pond.drain()
        assert pond.read("sums").to_pylist() == [{"rows": 3, "total": 13}]
    assert not query.isActive, "close() stops the query"
    with opened(tmp_path / "pond", query) as pond:
        pond.drain()
        query.batch(1, 10)
        query.batch(2, 100)
        pond.drain()
        assert pond.read("sums").to_pylist() == [{"rows": 4, "total": 113}]


def test_a_query_that_fails_is_reported_and_started_again(tmp_path: Path, query: StandInQuery) -> None:
    source = StreamingDataFrameSource(query).staged(tmp_path, "numbers")
    source.poll(None, None, 100)
    query.isActive, query.error = False, RuntimeError("the broker is gone")
    with pytest.raises(UnavailableError, match="the broker is gone"):
        source.poll(None, None, 100)
    source.poll(None, None, 100)
    assert query.starts == 2
    streaming_dataframe.stop_queries(tmp_path)
    assert not query.isActive
    assert source.poll(None, None, 100).splits == (), "another process may run the query"
    with pytest.raises(KeyError):
        keep_staging(str(source.path))


def test_kinds_of_dataframes(query: StandInQuery, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="has no end"):
        DataFrameSource(query).staged(tmp_path, "s")
    query.isStreaming = False  # type: ignore[misc]
    with pytest.raises(InvalidError, match="is not streaming"):
        StreamingDataFrameSource(query)
