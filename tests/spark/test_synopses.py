"""Sketches on Spark, restarted and rescaled between epochs, are those of one inline task, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond
from tests.sql.test_synopses import QUERY, batches, built


@pytest.mark.slow
def test_sketches_on_spark_are_those_of_one_task(session: Any, tmp_path: Path) -> None:
    for number, rows in enumerate(batches()):
        with millpond.open(tmp_path / "spark", spark=session) as pond:
            if not number:
                pond.sql("create table t (g int, x int, s text) append only")
                pond.sql(f"create materialized view v as {QUERY}")
            pond.rescale(1 + 2 * number)
            pond.drain()
            pond.sql(f"insert into t values {rows}")
            pond.drain()
            assert pond.head().metrics["tasks"][-1] == 1 + 2 * number
    with millpond.open(tmp_path / "spark", spark=session) as pond:
        found = pond.sql("select * from v order by g").arrow().to_pydict()
    assert found == built(tmp_path / "inline", disturbed=False)
