"""Rows of views and results as Spark DataFrames: with their types, of the active session or a given one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.serve.view_reader import ViewReader
from millpond.sinks import dataframes
from millpond.sql.result import Result
from tests.docs.api_examples import run_example
from tests.unit.sinks.test_dataframes import TABLE


def test_types_and_values_survive(session: Any) -> None:
    frame = dataframes.to_spark(TABLE, session)
    assert [kind for _, kind in frame.dtypes] == [
        "bigint",
        "decimal(38,9)",
        "timestamp",
        "timestamp_ntz",
        "array<string>",
        "struct<x:bigint,y:string>",
    ]
    assert frame.toArrow().cast(TABLE.schema).to_pylist() == TABLE.to_pylist()


def test_views_and_results_in_the_active_session(session: Any) -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 2); FLUSH")
        assert [tuple(r) for r in pond.view("t").to_spark().collect()] == [(1, 2)]
        assert [tuple(r) for r in pond.sql("SELECT n FROM t").to_spark(session).collect()] == [(2,)]


def test_a_large_view_is_read_by_the_workers(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.serve.view_reader.SPARK_ROWS_MIN", 1)
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 2), (3, 4); FLUSH")
        before = pond.head().epoch
        pond.sql("DELETE FROM t WHERE id = 1; FLUSH")
        found = pond.view("t").to_spark(session, epoch=before)
        assert "BatchScan millpond" in found._jdf.queryExecution().toString()
        assert sorted(found.collect()) == [(1, 2), (3, 4)]


def test_without_a_session(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(InvalidError, match="no active Spark session"):
        dataframes.to_spark(TABLE)


@pytest.mark.parametrize("cls", [ViewReader, Result], ids=["ViewReader", "Result"])
def test_the_examples_run(cls: type, session: Any, tmp_path: Path) -> None:
    assert run_example(cls, "to_spark", tmp_path, spark=session) == ""
