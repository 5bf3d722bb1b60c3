"""A secret that would be stored in clear in the catalog is found; a reference is not one."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from millpond.engine.change.programs import save_plan
from millpond.engine.task.worker import Worker
from millpond.plan.clear_secrets import clear_secrets
from millpond.sinks.files import FilesSink
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
