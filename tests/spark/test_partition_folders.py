"""Values in the names of folders: Spark and DuckDB read those of the files sink, and we read Spark's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import millpond
from millpond.sinks.files import FilesSink
from millpond.sources.files import FileSource

VALUES = [
    "Zürich",
    "日本",
    "𝄞",
    "e\u0301",
    "a/b",
    "a=b",
    "100%",
    "%2F",
    "x y",
    "q\"'",
    "back\\",
    "tab\t",
    "7",
    None,
]


@pytest.fixture
def texts_stay_texts(session: Any) -> Any:
    name = "spark.sql.sources.partitionColumnTypeInference.enabled"
    session.conf.set(name, "false")
    yield
    session.conf.unset(name)


def test_others_read_our_folders(session: Any, texts_stay_texts: None, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        table = pond.table("t", {"n": int, "größe": str, "day": str})
        table.view("v").sink("files", FilesSink(folder, partition_by=("größe", "day")), mode="changelog")
        pond.insert("t", [{"n": n, "größe": value, "day": "2024-05-01"} for n, value in enumerate(VALUES)])
        pond.drain()
    wanted = [(n, value, "2024-05-01") for n, value in enumerate(VALUES)]
    rows = session.read.parquet(str(folder)).select("n", "größe", "day").orderBy("n").collect()
    assert [tuple(row) for row in rows] == wanted
    found = f"read_parquet('{folder}/*/*/*.parquet', hive_partitioning = true, hive_types_autocast = false)"
    assert duckdb.sql(f'SELECT n, "größe", day FROM {found} ORDER BY n').fetchall() == wanted


def test_we_read_the_folders_of_spark(session: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    rows = [(n, value) for n, value in enumerate(VALUES)]
    session.createDataFrame(rows, "n long, `größe` string").write.partitionBy("größe").parquet(str(folder))
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        pond.stream("s", FileSource(folder, partition_by=("größe",))).view("v")
        pond.drain()
        assert sorted((r["n"], r["größe"]) for r in pond.read("v").to_pylist()) == rows
        assert pond.errors().num_rows == 0
