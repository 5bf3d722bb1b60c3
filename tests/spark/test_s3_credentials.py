"""A pond on S3 whose keys only the driver was given: tasks get them, and no payload contains them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

import millpond
from millpond.engine.spark import chain
from millpond.sources.memory import MemorySource
from tests.e2e.test_s3_store import KEYS, moto

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def test_keys_reach_the_workers_by_reference(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    sent: list[bytes] = []
    command = chain._command

    def recorded(*args: Any) -> bytes:
        sent.append(command(*args))
        return sent[-1]

    monkeypatch.setattr(chain, "_command", recorded)
    source = MemorySource(SCHEMA)
    with moto(tmp_path) as endpoint:
        options = {"endpoint": endpoint, "region": "us-east-1", "cache": str(tmp_path / "cache"), **KEYS}
        with millpond.open("s3://pond/keys", spark=session, store_options=options) as pond:
            pond.stream("in", source).key_by("k").aggregate(n="count(*)", id="g").view("g")
            source.push([{"k": n % 3, "v": n} for n in range(30)])
            pond.drain()
            assert sorted(r["n"] for r in pond.read("g").to_pylist()) == [10, 10, 10]
            stored = b"".join(pond.store.get(name) for name in pond.store.list("catalog/"))
    assert any(b"s3://pond/keys" in raw for raw in sent)
    secret = KEYS["secret_access_key"].encode()
    assert all(secret not in raw for raw in sent)
    assert secret not in stored
    assert cloudpickle.loads(sent[-1])
