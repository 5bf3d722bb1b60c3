"""A secret that would be stored in clear in the catalog is found; a reference is not one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.engine.change.programs import save_plan
from millpond.engine.task.worker import Worker
from millpond.plan.clear_secrets import _settings, clear_secrets
from millpond.sinks.files import FilesSink
from millpond.sinks.http import HttpSink
from millpond.sinks.iceberg import IcebergSink
from millpond.sinks.jdbc import JdbcSink
from millpond.sinks.postgres import PostgresSink
from millpond.sources.kafka import KafkaSource
from millpond.sources.kafka_topics import KafkaTopicsSource
from millpond.state.store.memory_store import MemoryStore


def test_secrets_of_sinks_are_named_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = {"access_key_id": "${env:KEY}", "secret_access_key": "hunter2", "region": "eu"}
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        view = pond.table("t", {"a": int}).view("t")
        view.sink("out", FilesSink("s3://bucket/out", options=keys))
        assert clear_secrets(pond.plan) == ["sink 'out': secret_access_key"]
        save_plan(Worker(MemoryStore()), pond.plan)
    said = [record.getMessage() for record in caplog.records if "in clear" in record.getMessage()]
    assert len(said) == 1
    assert "hunter2" not in said[0]


WORD, REFERENCE = "hunter2", "${env:WORD}"


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda word: PostgresSink(f"host=db password={word} user=ann", "t"), "connection"),
        (lambda word: PostgresSink(f"postgresql://ann:{word}@db/shop", "t"), "connection"),
        (lambda word: HttpSink("https://h/x", {"Authorization": f"Bearer {word}"}), "Authorization"),
        (lambda word: HttpSink("https://h/x", {"X-Api-Key": word}), "X-Api-Key"),
        (lambda word: JdbcSink("jdbc:x", "t", {"user": "ann", "password": word}), "password"),
        (lambda word: JdbcSink(f"jdbc:x?password={word}", "t"), "url"),
        (lambda word: IcebergSink("a.b", {"type": "rest", "uri": "https://h", "token": word}), "token"),
        (lambda word: KafkaSource("b:1", "t", {"n": int}, client=_login(word)), "sasl.password"),
        (
            lambda word: KafkaTopicsSource(KafkaSource("b:1", "t", {"n": int}, client=_login(word)), "t"),
            "sasl.password",
        ),
        (lambda word: KafkaSource("b:1", "t", {"n": int}, registry=f"http://ann:{word}@h"), "registry"),
        (
            lambda word: FilesSink("s3://b/t", options={"secret_access_key": word}),
            "secret_access_key",
        ),
    ],
)
def test_secrets_are_found_wherever_a_connector_has_them(made: Callable[[str], Any], named: str) -> None:
    assert list(_settings(made(WORD))) == [named]
    assert list(_settings(made(REFERENCE))) == []


def _login(word: str) -> dict[str, str]:
    return {"sasl.username": "ann", "sasl.mechanism": "PLAIN", "sasl.password": word}
