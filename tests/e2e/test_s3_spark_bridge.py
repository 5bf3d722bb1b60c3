"""Spark's data source over a pond on an S3 server: the options of the store reach the tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from tests.unit.spark_bridge.data_source_calls import loaded, read, source
from tests.unit.spark_bridge.test_table_writes import SCHEMA, batch

from .test_s3_store import KEYS, moto

pytestmark = pytest.mark.e2e


def test_reads_and_writes_with_store_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = "s3://pond/spark"
    with moto(tmp_path) as endpoint:
        options = {"endpoint": endpoint, "region": "us-east-1", **KEYS}
        given = {f"store__{name}": value for name, value in options.items()}
        with millpond.open(place, engine="inline", store_options=options) as pond:
            pond.table("t", {"k": int, "s": str}, key="k")
            pond.drain()
            writer = source(place, table="t", **given).writer(SCHEMA, False)
            writer.commit([writer.write(iter([batch(1, 2, 3)]))])
            pond.drain()
        made, schema = loaded(place, view="t", partitions=2, **given)
        assert sorted(read(made, schema).column("k").to_pylist()) == [1, 2, 3]
