"""Epochs of a few rows on Spark: one task runs all levels, and the views are those of the inline engine (law 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond import tuning
from millpond.engine.spark.engine import SingleTaskJob, SparkEngine

VIEWS = """
    CREATE TABLE t (id int PRIMARY KEY, k int, x int);
    CREATE MATERIALIZED VIEW a AS SELECT k, count(*) AS n, sum(x) AS total FROM t GROUP BY k;
    CREATE MATERIALIZED VIEW b AS SELECT n, count(*) AS groups FROM a GROUP BY n;
    CREATE MATERIALIZED VIEW c AS SELECT t.id, a.total FROM t JOIN a ON a.k = t.x;
    CREATE MATERIALIZED VIEW d AS SELECT DISTINCT x % 3 AS r FROM t;
    CREATE MATERIALIZED VIEW e AS SELECT x, min(id) AS first FROM t GROUP BY x;
    CREATE MATERIALIZED VIEW f AS SELECT x, k, max(id) AS last FROM t GROUP BY x, k
"""


def run(path: Path, **options: Any) -> tuple[list[Any], list[Any]]:
    found, tasks = [], []
    with millpond.open(path, parallelism=2, durable=False, **options) as pond:
        pond.sql(VIEWS)
        for turn in range(4):
            pond.sql(
                f"""INSERT INTO t SELECT i, i % 7, i % 5 + {turn} FROM range({turn * 20}, {turn * 20 + 40}) r(i);
                DELETE FROM t WHERE id % 11 = {turn}; FLUSH"""
            )
            found += [sorted(pond.read(view).to_pylist(), key=str) for view in ("a", "b", "c", "d", "e", "f")]
            tasks.append(pond.head().metrics.get("tasks"))
    return found, tasks


def test_one_task_runs_all_levels(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = run(tmp_path / "inline", engine="inline")
    monkeypatch.setattr(SparkEngine, "single_task_rows_max", 2000)
    monkeypatch.setattr(tuning, "PLAN_PARTS_US", 10**12)
    called: list[int] = []
    made = SingleTaskJob.__init__
    monkeypatch.setattr(SingleTaskJob, "__init__", lambda self, spec: called.append(1) or made(self, spec))
    found, tasks = run(tmp_path / "spark", spark=session)
    assert found == expected
    assert called and set(tasks[-1]) == {1} and len(tasks[-1]) > 1


def test_many_views_are_run_in_parts(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = run(tmp_path / "inline", engine="inline")
    monkeypatch.setattr(SparkEngine, "single_task_rows_max", 2000)
    monkeypatch.setattr(tuning, "PLAN_PARTS_US", 0)
    found, tasks = run(tmp_path / "spark", spark=session)
    assert found == expected
    assert set(tasks[-1]) == {2} and len(tasks[-1]) > 1
