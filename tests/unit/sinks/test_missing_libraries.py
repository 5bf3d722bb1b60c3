"""A connector whose library is not installed says in one sentence what to install."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import MillpondError
from millpond.plan.sink_settings import modes_of
from millpond.sinks.foreach_batch import ForeachBatchSink
from millpond.sinks.jdbc import JdbcSink
from millpond.sinks.postgres import PostgresSink
from millpond.sources import kafka_client, postgres_connection
from millpond.testing.sinks import Deliverer, Feed

SINKS: dict[str, tuple[Any, str, str]] = {
    "postgres": (PostgresSink("host=x", "t"), "psycopg", "psycopg"),
    "jdbc": (JdbcSink("jdbc:x", "t"), "pyspark.sql", "pyspark"),
    "foreach_batch": (ForeachBatchSink(lambda df, epoch: None), "pyspark.sql", "pyspark"),
}


@pytest.mark.parametrize("name", SINKS)
def test_sinks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, module, wanted = SINKS[name]
    monkeypatch.setitem(sys.modules, module, None)
    mode = modes_of(sink)[0]

    class Target:
        def sink(self) -> Any:
            return sink

        def read(self) -> list[Any]:
            return []

    with pytest.raises(MillpondError) as error:
        Deliverer(Target(), mode).give(Feed(mode).following(), all_rows=pa.table({"k": [1]}))
    assert error.value.hint is not None and "pip install" in error.value.hint and wanted in error.value.hint
    assert "\n" not in error.value.message


def test_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, library in (
        ("psycopg", postgres_connection.library),
        ("confluent_kafka", kafka_client.library),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MillpondError, match="is not installed") as error:
            library()
        assert error.value.hint is not None and "pip install 'millpond[" in error.value.hint
