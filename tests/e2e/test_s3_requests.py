"""The requests of an epoch on S3 are bounded: docs/deploy/README.md states the bound."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond.sources.memory import MemorySource
from tests.link import link_to

from .test_s3_store import KEYS, moto

pytestmark = pytest.mark.e2e

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
EPOCHS = 10
LATENCY_S = 0.02


def kind(method: str, path: str) -> str:
    folder = re.search(r"(manifests|runs|inbox|lease|pages|pins|catalog|names)", path)
    return f"{method} {folder[1] if folder else path}"


def test_an_epoch_of_count_and_sum_makes_three_requests_one_after_the_other(tmp_path: Path) -> None:
    source = MemorySource(SCHEMA)
    with moto(tmp_path) as endpoint, link_to(endpoint, LATENCY_S) as link:
        options = {"endpoint": link.endpoint, "region": "us-east-1", "cache": str(tmp_path / "cache"), **KEYS}
        with millpond.open(
            "s3://pond/requests", engine="inline", store_options=options, compact=False, lease_ms=60_000
        ) as pond:
            pond.stream("in", source).key_by("k").aggregate(n="count(*)", s="sum(v)", id="g").view("g")
            source.push([{"k": 1, "v": 2}])
            pond.drain()
            took: list[float] = []
            pond.on_epoch(lambda manifest: took.append(link.requests[-1][0]))
            before = len(link.requests)
            for n in range(EPOCHS):
                source.push([{"k": n % 3, "v": n}])
                pond.drain()
            made = Counter(kind(method, path) for _, method, path in link.requests[before:])
            epochs = len(took)
            assert pond.read("g").num_rows == 3
    made = Counter({name: count for name, count in made.items() if "lease" not in name})
    print(made, epochs)
    assert made["PUT runs"] == made["PUT manifests"] == epochs
    assert made["GET inbox"] <= 2 * epochs  # drain() polls once more to see that nothing is left
    assert made.total() <= 4 * epochs, made
