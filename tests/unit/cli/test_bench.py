"""`millpond bench` runs the benchmarks of a source tree, and says so where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from millpond.cli.commands import bench
from millpond.errors import InvalidError


def test_options_are_handed_on() -> None:
    command = bench.bench_command("nexmark", {"events": "20000", "against": "flink"})
    assert command[1:] == ["-m", "benchmarks", "nexmark", "--events", "20000", "--against", "flink"]


def test_an_unknown_benchmark_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidError, match="no benchmark named 'tpch'") as error:
        bench.bench_command("tpch", {})
    assert "nexmark" in str(error.value)


def test_queries_belong_to_nexmark() -> None:
    with pytest.raises(InvalidError, match="--queries is an option of nexmark"):
        bench.bench_command("headline", {"queries": "q1"})


def test_the_source_tree_is_found() -> None:
    assert (bench.source_tree() / "benchmarks" / "nexmark").is_dir()


def test_an_installed_package_says_where_the_benchmarks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(millpond, "__file__", str(tmp_path / "a" / "b" / "__init__.py"))
    with pytest.raises(InvalidError, match="not installed") as error:
        bench.source_tree()
    assert "clone the repository" in str(error.value)
