"""A whole pond on S3: runs, restarts, compaction, collection and readers over a real S3 protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.sources.memory import MemorySource

from .test_s3_store import KEYS, moto

pytestmark = pytest.mark.e2e

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto(tmp_path_factory.mktemp("server")) as found:
        yield found


def test_a_pond_lives_on_s3(endpoint: str, tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    options = {"endpoint": endpoint, "region": "us-east-1", "cache": str(tmp_path / "cache"), **KEYS}

    def opened() -> millpond.Pond:
        pond = millpond.open(
            "s3://pond/one", engine="inline", parallelism=2, store_options=options, fan_in=2, retain_epochs=3
        )
        pond.stream("in", source).key_by("k").aggregate(n="count(*)", s="sum(v)", id="g").view("g")
        return pond

    live: dict[int, list[int]] = {}
    for restart in range(3):
        with opened() as pond:
            for number in range(4):
                rows = [{"k": (restart + n) % 4, "v": n * number} for n in range(6)]
                for row in rows:
                    live.setdefault(row["k"], []).append(row["v"])
                source.push(rows)
                pond.drain()
                got = {r["k"]: (r["n"], r["s"]) for r in pond.read("g").to_pylist()}
                assert got == {k: (len(vs), sum(vs)) for k, vs in live.items()}
    reader = millpond.open("s3://pond/one", store_options=options)
    assert reader.lookup("g", 1).to_pylist() == [{"k": 1, "n": len(live[1]), "s": sum(live[1])}]
    assert reader.head().floor > 0
    assert any((tmp_path / "cache").rglob("*")), "runs went past the disk cache"
